// SPDX-License-Identifier: Apache-2.0
// BlockWriter: threads take writes (at most a block each) in the order of the files. Training that needs a unit's
// memory earlier copies it to the snapshot itself.
#include <algorithm>
#include <cstring>
#include <ctime>

#include "io/checkpoint/blocks.hpp"
#include "io/file/crc32c.hpp"
#include "io/file/work_progress.hpp"
#include "runtime/base/start_thread.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

/// CPU time of the calling thread.
double thread_seconds() {
  std::timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

/// What a thread writes from.
struct BlockWriter::Buffers {
  DirectBuffer bounce{block_bytes};   // where memory is not aligned as its place in the file is
  DirectBuffer fetched{block_bytes};  // a device's memory
};

/// Copies a device's memory to the snapshot, unit by unit, on a stream of its own.
class BlockWriter::DeviceCopy {
 public:
  DeviceCopy(Device device, std::size_t units)
      : there_(units), stream_("snapshot", Stream::Mode::immediate, device, Priority::normal) {
    synchronize(device);  // updates that were enqueued before
  }
  ~DeviceCopy() {
    try {
      stream_.synchronize();  // before the snapshot is used again
    } catch (...) {           // the device has failed, and whoever waited for it has reported that
    }
  }
  DeviceCopy(const DeviceCopy&) = delete;

  void copy(void* to, const void* from, std::size_t bytes) { copy_bytes(to, from, bytes, stream_.view()); }
  /// All copies of the unit are enqueued.
  void end(std::size_t unit) { stream_.record(there_[unit]); }
  void wait(std::size_t unit) { there_[unit].wait(); }

 private:
  std::vector<Event> there_;
  Stream stream_;
};

BlockWriter::BlockWriter(const std::vector<std::string>& paths, const std::vector<StateRange>& ranges,
                         std::span<std::byte> snapshot, int threads, std::function<void()> last)
    : last_(std::move(last)) {
  int units = 0;
  for (const StateRange& e : ranges) {
    units = std::max(units, e.unit + 1);
    for (std::uint64_t done = 0; done < e.bytes;) {
      const std::uint64_t offset = e.offset + done, n = std::min(e.bytes - done, block_bytes - offset % block_bytes);
      Write write{.memory = e.memory + done, .snapshot = nullptr, .device = e.device, .unit = e.unit};
      if (!snapshot.empty()) {
        TESSERA_ASSERT(bytes_ + n <= snapshot.size(), "a snapshot of %zu bytes is too small", snapshot.size());
        write.snapshot = snapshot.data() + bytes_;
      }
      writes_.push_back(write);
      checksums_.push_back({static_cast<std::uint32_t>(e.file), 0, offset, n});
      bytes_ += n;
      done += n;
    }
  }
  of_unit_.resize(static_cast<std::size_t>(units));
  for (std::size_t i = 0; i < writes_.size(); ++i) of_unit_[static_cast<std::size_t>(writes_[i].unit)].push_back(i);
  const auto on_gpu = [](const Write& write) { return write.device.kind == Device::Kind::cuda; };
  if (!snapshot.empty() && !writes_.empty() && std::ranges::all_of(writes_, on_gpu)) copy_from_device();
  for (std::size_t f = 0; f < paths.size(); ++f) {
    const bool used = std::ranges::any_of(ranges, [&](const StateRange& e) { return e.file == static_cast<int>(f); });
    files_.push_back(used ? std::make_unique<DirectFile>(paths[f], DirectFile::Access::write) : nullptr);
  }
  const int count = std::max(1, threads);
  running_ = count;  // the first threads lower it while the last are started
  try {
    for (int t = 0; t < count; ++t) threads_.push_back(start_thread("a save", [this] { work(); }));
  } catch (...) {  // the system has no thread left
    end();
    throw;
  }
}

BlockWriter::~BlockWriter() { end(); }

void BlockWriter::copy_from_device() {
  copy_ = std::make_unique<DeviceCopy>(writes_.front().device, of_unit_.size());
  for (std::size_t unit = 0; unit < of_unit_.size(); ++unit) {
    for (const std::size_t i : of_unit_[unit]) {
      copy_->copy(writes_[i].snapshot, writes_[i].memory, static_cast<std::size_t>(checksums_[i].bytes));
      writes_[i].memory = writes_[i].snapshot;
      copied_ += checksums_[i].bytes;
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
    Buffers buffers;
    while (!stop_ && done_ < writes_.size()) {
      while (next_ < writes_.size() && writes_[next_].state == State::done) ++next_;
      std::size_t i = next_;
      while (i < writes_.size() && writes_[i].state != State::pending) ++i;
      if (i == writes_.size()) {  // other threads have the rest
        changed_.wait(lock);
        continue;
      }
      writes_[i].state = State::busy;
      lock.unlock();
      std::exception_ptr failed;
      try {
        write(i, writes_[i].memory, buffers);
      } catch (...) { failed = std::current_exception(); }
      lock.lock();
      writes_[i].state = State::done;
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
  const bool complete = !stop_;
  lock.unlock();
  const double before = thread_seconds();
  std::exception_ptr failed;
  try {
    for (const auto& file : files_)
      if (file && complete) file->finish();
    if (complete && last_) last_();
  } catch (...) { failed = std::current_exception(); }
  lock.lock();
  if (failed && !error_) error_ = failed;
  cpu_seconds_ += thread_seconds() - before;
  finished_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void BlockWriter::write(std::size_t i, const std::byte* memory, Buffers& buffers) {
  RangeChecksum& checksum = checksums_[i];
  if (copy_) copy_->wait(static_cast<std::size_t>(writes_[i].unit));
  else if (writes_[i].device != host_device && memory != writes_[i].snapshot) {
    const auto fetched = buffers.fetched.span().first(static_cast<std::size_t>(checksum.bytes));
    copy_now(writes_[i].device, fetched.data(), memory, fetched.size());
    memory = fetched.data();
  }
  const std::span bytes(memory, static_cast<std::size_t>(checksum.bytes));
  checksum.crc = crc32c(0, bytes);
  files_[checksum.file]->write(checksum.offset, bytes, buffers.bounce);
}

void BlockWriter::before_update(int unit) {
  if (static_cast<std::size_t>(unit) >= of_unit_.size() || finished()) return;
  if (copy_) return copy_->wait(static_cast<std::size_t>(unit));
  std::unique_lock lock(mutex_);
  for (const std::size_t i : of_unit_[static_cast<std::size_t>(unit)]) {
    Write& write = writes_[i];
    const bool in_snapshot = write.memory == write.snapshot;
    if (in_snapshot) continue;
    const auto ready = [&] {
      return write.state == State::done || (write.state == State::pending && (write.snapshot != nullptr || stop_));
    };
    changed_.wait(lock, ready);
    if (write.state == State::done || stop_) continue;
    write.state = State::busy;
    lock.unlock();
    copy_now(write.device, write.snapshot, write.memory, static_cast<std::size_t>(checksums_[i].bytes));
    lock.lock();
    write.memory = write.snapshot;
    write.device = host_device;
    write.state = State::pending;
    copied_ += checksums_[i].bytes;
    changed_.notify_all();
  }
}

void BlockWriter::wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t total = writes_.size() * block_bytes;
  changed_.wait(lock, [&] {
    report_work("save", finished() ? total : done_ * block_bytes, total);
    return finished();
  });
  if (error_) std::rethrow_exception(error_);
}

}  // namespace tessera::io
