// SPDX-License-Identifier: Apache-2.0
// Transfers are divided into blocks, which the threads take in order. The thread that moves a block also computes its
// checksum, while the block is in its cache.
#include "io/scratch/scratch_store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "io/file/crc32c.hpp"
#include "runtime/base/start_thread.hpp"

namespace tessera::io {

struct ScratchTransfer::Progress {
  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::size_t left = 0;  // blocks
  std::exception_ptr error;
};

bool ScratchTransfer::done() const {
  if (progress_ == nullptr) return true;
  const std::lock_guard lock(progress_->mutex);
  return progress_->left == 0;
}

void ScratchTransfer::wait() const {
  if (progress_ == nullptr) return;
  std::unique_lock lock(progress_->mutex);
  progress_->changed.wait(lock, [this] { return progress_->left == 0; });
  if (progress_->error) std::rethrow_exception(progress_->error);
}

void ScratchStore::Busy::begin(Clock::time_point now) {
  if (tasks++ == 0) since = now;
}
void ScratchStore::Busy::end(Clock::time_point now) {
  seconds = until(now);
  since = now;
  --tasks;
}
double ScratchStore::Busy::until(Clock::time_point now) const {
  return tasks == 0 ? seconds : seconds + std::chrono::duration<double>(now - since).count();
}

/// Regions begin on pages.
std::vector<std::uint64_t> ScratchStore::place(const std::vector<ScratchRegion>& regions) {
  std::vector<std::uint64_t> offsets{0};
  for (const ScratchRegion& region : regions)
    offsets.push_back(offsets.back() + round_up(region.bytes, direct_alignment));
  return offsets;
}

ScratchStore::ScratchStore(Spec spec)
    : spec_(std::move(spec)),
      offsets_(place(spec_.regions)),
      file_(spec_.directory, spec_.rank, offsets_.back(), spec_.option) {
  for (const ScratchRegion& region : spec_.regions)
    blocks_.emplace_back(static_cast<std::size_t>((region.bytes + block_bytes - 1) / block_bytes));
  try {
    for (int t = 0; t < std::max(1, spec_.threads); ++t)
      threads_.push_back(start_thread("threads of a scratch file", [this] { work(); }));
  } catch (...) {  // the system has no thread left
    stop();
    throw;
  }
}

ScratchStore::~ScratchStore() { stop(); }

void ScratchStore::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

ScratchTimes ScratchStore::times() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  return {.bytes_read = bytes_[0],
          .bytes_written = bytes_[1],
          .read_seconds = busy_[0].until(now),
          .write_seconds = busy_[1].until(now),
          .busy_seconds = either_.until(now)};
}

ScratchTransfer ScratchStore::write(std::size_t region, std::span<const std::byte> bytes, std::uint64_t first) {
  return begin(Direction::write, region, const_cast<std::byte*>(bytes.data()), bytes.size(), first);
}
ScratchTransfer ScratchStore::read(std::size_t region, std::span<std::byte> bytes, std::uint64_t first) {
  return begin(Direction::read, region, bytes.data(), bytes.size(), first);
}

ScratchTransfer ScratchStore::begin(Direction direction, std::size_t region, std::byte* memory, std::size_t bytes,
                                    std::uint64_t first) {
  TESSERA_ASSERT(region < spec_.regions.size(), "region %zu of %zu", region, spec_.regions.size());
  const ScratchRegion& r = spec_.regions[region];
  const std::uint64_t last = first + bytes;
  TESSERA_ASSERT(first % block_bytes == 0 && last <= r.bytes && (last % block_bytes == 0 || last == r.bytes),
                 "bytes %lu to %lu of %lu of %s of %s", first, last, r.bytes, r.state.c_str(), r.unit.c_str());
  TESSERA_ASSERT(reinterpret_cast<std::uintptr_t>(memory) % direct_alignment == 0, "%s of %s: memory not on a page",
                 r.state.c_str(), r.unit.c_str());
  ScratchTransfer transfer;
  if (bytes == 0) return transfer;
  transfer.progress_ = std::make_shared<ScratchTransfer::Progress>();
  transfer.progress_->left = static_cast<std::size_t>((bytes + block_bytes - 1) / block_bytes);
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (std::uint64_t at = 0; at < bytes; at += block_bytes) {
      tasks_[static_cast<int>(direction)].push_back({transfer.progress_, direction, region, (first + at) / block_bytes,
                                                     memory + at,
                                                     static_cast<std::size_t>(std::min(block_bytes, bytes - at))});
      busy_[static_cast<int>(direction)].begin(now);
      either_.begin(now);
    }
  }
  changed_.notify_all();
  return transfer;
}

/// The next block of the direction that has its turn; if that has none, of the other.
ScratchStore::Task ScratchStore::take() {
  auto direction = static_cast<int>(next_);
  if (tasks_[direction].empty()) direction = 1 - direction;
  Task task = std::move(tasks_[direction].front());
  tasks_[direction].pop_front();
  next_ = static_cast<Direction>(1 - direction);
  return task;
}

void ScratchStore::work() {
  const auto idle = [this] { return tasks_[0].empty() && tasks_[1].empty(); };
  const DirectBuffer page(direct_alignment);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !idle(); });
    if (idle()) return;  // stopped, and nothing is left to do
    const Task task = take();
    lock.unlock();
    std::exception_ptr error;
    try {
      move(task, page);
    } catch (...) { error = std::current_exception(); }
    lock.lock();
    const auto direction = static_cast<int>(task.direction);
    bytes_[direction] += task.bytes;
    const auto now = Clock::now();
    busy_[direction].end(now);
    either_.end(now);
    lock.unlock();
    {
      const std::lock_guard progress(task.transfer->mutex);
      if (error && !task.transfer->error) task.transfer->error = error;
      if (--task.transfer->left == 0) task.transfer->changed.notify_all();
    }
    lock.lock();
  }
}

/// Moves one block. Whole pages go to and from the caller's memory, the rest of the region's last one by way of `page`.
void ScratchStore::move(const Task& task, const DirectBuffer& page) {
  Block& block = blocks_[task.region][static_cast<std::size_t>(task.block)];
  const std::uint64_t at = offsets_[task.region] + task.block * block_bytes;
  const std::size_t whole = task.bytes / direct_alignment * direct_alignment, rest = task.bytes - whole;
  const std::span<std::byte> bytes(task.memory, task.bytes), pages = bytes.first(whole);
  if (task.direction == Direction::write) {
    block = {crc32c(0, bytes), true};
    int why = file_.write(at, pages);
    if (rest > 0 && why == 0) {
      std::memcpy(page.span().data(), task.memory + whole, rest);
      why = file_.write(at + whole, page.span());
    }
    if (why != 0) fail(task, "cannot write " + path() + ": " + std::generic_category().message(why), why);
    return;
  }
  if (!block.written) {
    std::ranges::fill(bytes, std::byte{0});
    return;
  }
  int why = file_.read(at, pages);
  if (rest > 0 && why == 0) {
    why = file_.read(at + whole, page.span());
    std::memcpy(task.memory + whole, page.span().data(), rest);
  }
  if (why != 0) fail(task, "cannot read " + path() + ": " + std::generic_category().message(why), why);
  const std::uint32_t crc = crc32c(0, bytes);
  if (crc != block.crc)
    fail(task,
         strfmt("what was read from %s is not what was written: CRC32C %08x, not %08x", path().c_str(), crc, block.crc),
         EIO);
}

void ScratchStore::fail(const Task& task, const std::string& what, int error_number) const {
  const ScratchRegion& region = spec_.regions[task.region];
  const std::uint64_t first = task.block * block_bytes;
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  throw Error(
      ExitCode::data, what,
      strfmt("state %s of unit %s, bytes %lu to %lu", region.state.c_str(), region.unit.c_str(), first,
             first + task.bytes),
      (full ? "Free some space, or choose another " + spec_.option : "The disk fails: choose another " + spec_.option) +
          ", and resume from the last checkpoint");
}

}  // namespace tessera::io
