// BlockWriter: threads that take chunks (at most a block each) in order of the files, and training that overtakes them.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#include "io/checkpoint/blocks.hpp"
#include "io/file/crc32c.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

constexpr std::uint64_t page = 4096;         // offsets and lengths past the page cache
constexpr std::uint64_t memory_grain = 512;  // and addresses, on the block devices there are
constexpr std::uint64_t least_direct = 16384;

bool aligned(const std::byte* p, std::uint64_t to) { return reinterpret_cast<std::uintptr_t>(p) % to == 0; }

/// Processor time of the calling thread.
double thread_seconds() {
  std::timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

/// A thread's block of aligned memory, made when first asked for. In huge pages: the system pins a write's memory page
/// by page.
class BlockWriter::Bounce {
 public:
  std::byte* data() {
    if (!memory_) {
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(huge, block_bytes)));
      if (!memory_) throw std::bad_alloc();
      (void)::madvise(memory_.get(), block_bytes, MADV_HUGEPAGE);
    }
    return memory_.get();
  }

  /// At most a block of a device's memory, here until the next one comes.
  const std::byte* fetched(Device device, const std::byte* memory, std::size_t bytes) {
    fetched_.resize(block_bytes);
    copy_now(device, fetched_.data(), memory, bytes);
    return fetched_.data();
  }

 private:
  static constexpr std::size_t huge = 2u << 20;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::byte> fetched_;
};

/// One file, opened both ways.
class BlockWriter::Target {
 public:
  explicit Target(const std::string& path)
      : through_(File::open_to_write(path)),
        past_(File::open_to_write(path, Cache::direct)),
        direct_(past_.descriptor() >= 0) {}

  /// Past the cache what can go there; ends and small pieces are kept for finish(): through the cache they would
  /// wait for every write past it.
  void write(std::uint64_t offset, std::span<const std::byte> bytes, Bounce& bounce) {
    const std::uint64_t head = (page - offset % page) % page;
    if (bytes.size() >= least_direct && direct_) {
      const std::uint64_t middle = (bytes.size() - head) / page * page;
      if (write_past(offset + head, bytes.subspan(head, middle), bounce)) {
        keep(offset, bytes.first(head));
        keep(offset + head + middle, bytes.subspan(head + middle));
        return;
      }
    }
    if (direct_ && bytes.size() < least_direct) keep(offset, bytes);
    else through_.write_at(offset, bytes);
  }
  /// Writes what was kept, and syncs.
  void finish() {
    std::ranges::sort(kept_, {}, &Kept::offset);
    for (const Kept& k : kept_) through_.write_at(k.offset, std::as_bytes(std::span(k.bytes)));
    through_.sync();
  }

 private:
  struct Kept {
    std::uint64_t offset = 0;
    std::string bytes;
  };
  void keep(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    Kept kept{offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(kept));
  }
  /// False if the file system does not take it this way.
  bool write_past(std::uint64_t offset, std::span<const std::byte> bytes, Bounce& bounce) {
    const bool copied = !aligned(bytes.data(), memory_grain) || copies_;
    if (copied) {
      std::memcpy(bounce.data(), bytes.data(), bytes.size());
      bytes = {bounce.data(), bytes.size()};
    }
    ssize_t put = 0;
    do put = ::pwrite(past_.descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    while (put < 0 && errno == EINTR);
    if (put < 0 && errno == EINVAL) {
      if (copied) direct_ = false;
      else copies_ = true;
      return copies_ && direct_ && write_past(offset, bytes, bounce);
    }
    if (put < 0) throw system_error("write", past_.path(), errno);
    // A short write may end anywhere: the rest goes the other way, which says what is wrong.
    through_.write_at(offset + static_cast<std::uint64_t>(put), bytes.subspan(static_cast<std::size_t>(put)));
    return true;
  }

  File through_, past_;
  std::atomic<bool> direct_, copies_ = false;
  std::mutex mutex_;
  std::vector<Kept> kept_;
};

/// A device's memory on its way to the snapshot, unit by unit, beside what the device does meanwhile.
class BlockWriter::DeviceCopy {
 public:
  DeviceCopy(Device device, std::size_t units)
      : there_(units), stream_("snapshot", Stream::Mode::immediate, device, Priority::normal) {
    synchronize(device);  // the updates before
  }
  ~DeviceCopy() {
    try {
      stream_.synchronize();  // before the snapshot is used again
    } catch (...) {           // a device that has failed copies no more; who waited for it has said so
    }
  }
  DeviceCopy(const DeviceCopy&) = delete;

  void copy(void* to, const void* from, std::size_t bytes) { copy_bytes(to, from, bytes, stream_.view()); }
  /// All of the unit has been given.
  void end(std::size_t unit) { stream_.record(there_[unit]); }
  void wait(std::size_t unit) { there_[unit].wait(); }

 private:
  std::vector<Event> there_;
  Stream stream_;
};

BlockWriter::BlockWriter(const std::vector<std::string>& paths, const std::vector<StateRange>& extents,
                         std::span<std::byte> snapshot, int threads, std::function<void()> last)
    : last_(std::move(last)) {
  int units = 0;
  for (const StateRange& e : extents) {
    units = std::max(units, e.unit + 1);
    for (std::uint64_t done = 0; done < e.bytes;) {
      const std::uint64_t offset = e.offset + done, n = std::min(e.bytes - done, block_bytes - offset % block_bytes);
      Chunk chunk{.memory = e.memory + done, .snapshot = nullptr, .device = e.device, .unit = e.unit};
      if (!snapshot.empty()) {
        TESSERA_ASSERT(bytes_ + n <= snapshot.size(), "a snapshot of %zu bytes is too small", snapshot.size());
        chunk.snapshot = snapshot.data() + bytes_;
      }
      chunks_.push_back(chunk);
      pieces_.push_back({static_cast<std::uint32_t>(e.file), 0, offset, n});
      bytes_ += n;
      done += n;
    }
  }
  of_unit_.resize(static_cast<std::size_t>(units));
  for (std::size_t i = 0; i < chunks_.size(); ++i) of_unit_[static_cast<std::size_t>(chunks_[i].unit)].push_back(i);
  if (!snapshot.empty() && !chunks_.empty() && chunks_.front().device != host_device) copy_from_device();
  for (std::size_t f = 0; f < paths.size(); ++f) {
    const bool used = std::ranges::any_of(extents, [&](const StateRange& e) { return e.file == static_cast<int>(f); });
    targets_.push_back(used ? std::make_unique<Target>(paths[f]) : nullptr);
  }
  const int count = std::max(1, threads);
  running_ = count;  // which the first threads lower while the last are made
  try {
    for (int t = 0; t < count; ++t) threads_.emplace_back([this] { work(); });
  } catch (...) {  // no thread more is to be had
    end();
    throw;
  }
}

BlockWriter::~BlockWriter() { end(); }

void BlockWriter::copy_from_device() {
  copy_ = std::make_unique<DeviceCopy>(chunks_.front().device, of_unit_.size());
  for (std::size_t unit = 0; unit < of_unit_.size(); ++unit) {
    for (const std::size_t i : of_unit_[unit]) {
      copy_->copy(chunks_[i].snapshot, chunks_[i].memory, static_cast<std::size_t>(pieces_[i].bytes));
      chunks_[i].memory = chunks_[i].snapshot;
      copied_ += pieces_[i].bytes;
    }
    copy_->end(unit);
  }
}

void BlockWriter::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void BlockWriter::work() {
  std::unique_lock lock(mutex_);
  try {
    Bounce bounce;
    while (!stop_ && done_ < chunks_.size()) {
      while (next_ < chunks_.size() && chunks_[next_].state == State::done) ++next_;
      std::size_t i = next_;
      while (i < chunks_.size() && chunks_[i].state != State::pending) ++i;
      if (i == chunks_.size()) {  // the rest is in other hands
        changed_.wait(lock);
        continue;
      }
      chunks_[i].state = State::busy;
      lock.unlock();
      std::exception_ptr failed;
      try {
        write(i, chunks_[i].memory, bounce);
      } catch (...) { failed = std::current_exception(); }
      lock.lock();
      chunks_[i].state = State::done;
      ++done_;
      changed_.notify_all();
      if (failed) std::rethrow_exception(failed);
    }
  } catch (...) {
    if (!error_) error_ = std::current_exception();
    stop_ = true;
    changed_.notify_all();
  }
  cpu_seconds_ += thread_seconds();
  if (--running_ > 0) return;
  const bool whole = !stop_;
  lock.unlock();
  const double before = thread_seconds();
  std::exception_ptr failed;
  try {
    for (const auto& target : targets_)
      if (target && whole) target->finish();
    if (whole && last_) last_();
  } catch (...) { failed = std::current_exception(); }
  lock.lock();
  if (failed && !error_) error_ = failed;
  cpu_seconds_ += thread_seconds() - before;
  finished_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void BlockWriter::write(std::size_t i, const std::byte* memory, Bounce& bounce) {
  RangeChecksum& piece = pieces_[i];
  if (copy_) copy_->wait(static_cast<std::size_t>(chunks_[i].unit));
  else if (chunks_[i].device != host_device)
    memory = bounce.fetched(chunks_[i].device, memory, static_cast<std::size_t>(piece.bytes));
  const std::span bytes(memory, static_cast<std::size_t>(piece.bytes));
  piece.crc = crc32c(0, bytes);
  targets_[piece.file]->write(piece.offset, bytes, bounce);
}

void BlockWriter::before_update(int unit) {
  if (static_cast<std::size_t>(unit) >= of_unit_.size() || finished()) return;
  if (copy_) return copy_->wait(static_cast<std::size_t>(unit));
  std::unique_lock lock(mutex_);
  for (const std::size_t i : of_unit_[static_cast<std::size_t>(unit)]) {
    Chunk& chunk = chunks_[i];
    const bool in_snapshot = chunk.memory == chunk.snapshot;
    if (in_snapshot) continue;
    const auto settled = [&] {
      return chunk.state == State::done || (chunk.state == State::pending && (chunk.snapshot != nullptr || stop_));
    };
    changed_.wait(lock, settled);
    if (chunk.state == State::done || stop_) continue;
    chunk.state = State::busy;
    lock.unlock();
    std::memcpy(chunk.snapshot, chunk.memory, static_cast<std::size_t>(pieces_[i].bytes));
    lock.lock();
    chunk.memory = chunk.snapshot;
    chunk.state = State::pending;
    copied_ += pieces_[i].bytes;
    changed_.notify_all();
  }
}

void BlockWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished(); });
  if (error_) std::rethrow_exception(error_);
}

}  // namespace tessera::io
