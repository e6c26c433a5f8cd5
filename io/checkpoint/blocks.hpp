// SPDX-License-Identifier: Apache-2.0
#pragma once
// State files are written and read by many threads and ranks at once, in blocks that each have a checksum. System calls
// and threads, but for write_by_mpio.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/checkpoint/state.hpp"
#include "io/file/direct_file.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

/// The CRC of a byte range inside one block of a file.
struct RangeChecksum {
  std::uint32_t file = 0, crc = 0;
  std::uint64_t offset = 0, bytes = 0;
};

/// To and from the bytes that ranks send each other.
[[nodiscard]] std::string pack_checksums(const std::vector<RangeChecksum>& checksums);
[[nodiscard]] std::vector<RangeChecksum> unpack_checksums(const std::vector<std::string>& of_ranks);

/// Joins the checksums of all writers into the CRC of each block and of each data set of each file. `checksums` are in
/// any order; none crosses the end of a block or of a data set. Throws Error (internal) at the first byte that was
/// written not at all or twice.
void join_checksums(std::vector<RangeChecksum> checksums, std::vector<StateFile>& files);

/// Writes ranges of memory into existing files on its own threads, by DirectFile, and makes them durable. Every byte is
/// read from memory once: the checksum is taken just before the write. A device's memory is first copied to the
/// snapshot (pinned host memory), or without a snapshot to a buffer of each thread.
class BlockWriter {
 public:
  /// Starts at once; waits for the device's work so far. `snapshot` is memory that before_update may copy to, as large
  /// as the sum of the ranges; if it is empty, before_update waits for the write instead. `last` runs on one of the
  /// threads when everything is durable; an exception it throws is the writer's error.
  BlockWriter(const std::vector<std::string>& paths, const std::vector<StateRange>& ranges,
              std::span<std::byte> snapshot, int threads, std::function<void()> last = {});
  /// Waits for writes in progress and drops the rest.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;

  /// When it returns, the memory of `unit` may change: all of it is written or copied. Allocates nothing. Any thread.
  void before_update(int unit);
  /// Everything is durable, or something has failed.
  [[nodiscard]] bool finished() const { return finished_.load(std::memory_order_acquire); }
  /// Waits until finished(); throws the first error.
  void wait();
  /// After wait(): in order of (file, offset).
  [[nodiscard]] const std::vector<RangeChecksum>& checksums() const { return checksums_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Bytes copied to the snapshot.
  [[nodiscard]] std::uint64_t copied() const { return copied_; }
  /// After wait(): CPU time of its threads.
  [[nodiscard]] double cpu_seconds() const { return cpu_seconds_; }

 private:
  enum class State : unsigned char { pending, busy, done };
  /// What one write takes: at most a block. checksums_[i] says where write i goes.
  struct Write {
    const std::byte* memory = nullptr;
    std::byte* snapshot = nullptr;  // its copy
    Device device;
    int unit = 0;
    State state = State::pending;
  };
  struct Buffers;
  class DeviceCopy;
  void copy_from_device();
  void work();
  void write(std::size_t index, const std::byte* memory, Buffers& buffers);
  void end();

  std::function<void()> last_;
  std::vector<std::unique_ptr<DirectFile>> files_;  // null: nothing of this rank
  std::vector<RangeChecksum> checksums_;            // of the write of the same index
  std::vector<Write> writes_;
  std::vector<std::vector<std::size_t>> of_unit_;
  std::unique_ptr<DeviceCopy> copy_;  // if the memory is a device's and there is a snapshot
  std::uint64_t bytes_ = 0, copied_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0, done_ = 0;
  double cpu_seconds_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
  std::atomic<bool> finished_{false};
  std::vector<std::thread> threads_;  // last: they use the rest
};

/// Collective. Writes the ranges of all ranks through parallel HDF5 and MPI-IO (io/hdf5/mpio_file.hpp), and makes them
/// durable; returns the checksums of this rank's. Throws Error (data) on every rank alike; a rank that hangs or leaves
/// the others in MPI ends the run (World::with_mpi).
[[nodiscard]] std::vector<RangeChecksum> write_by_mpio(World& world, const std::vector<std::string>& paths,
                                                       const std::vector<StateFile>& files,
                                                       const std::vector<StateRange>& ranges);

/// Reads one file block by block. Where `file` has checksums, no byte is handed out before its block is checked. One
/// thread.
class BlockReader {
 public:
  /// `file` must outlive it. Throws Error (data): not there, not of the size that `file` says (E109).
  BlockReader(const std::string& path, const StateFile& file);
  /// All bytes of a block, valid until the next call. Throws Error (data), E123: file, block, and the data sets in it.
  [[nodiscard]] std::span<const std::byte> block(std::uint64_t index);
  /// Bytes [first, last) of one block, not checked: the caller joins their checksum with those of other ranks. Valid
  /// until the next call.
  [[nodiscard]] std::span<const std::byte> unchecked(std::uint64_t first, std::uint64_t last);
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  const StateFile* description_;
  DirectFile file_;
  DirectBuffer buffer_;
  std::uint64_t current_ = ~std::uint64_t{0}, bytes_read_ = 0;
};

/// Copies bytes from `offset` of the file on, which lie inside the range, to the range's memory, in the type that the
/// memory holds. If the types differ, `bytes` are complete elements. Throws Error (data): a value that memory cannot
/// hold.
void put_range(const StateRange& range, std::uint64_t offset, std::span<const std::byte> bytes);

/// What read_ranges has read: bytes from disk, and the checksums of ranges in blocks that other ranks read parts of as
/// well.
struct RangesRead {
  std::uint64_t bytes = 0;
  std::vector<RangeChecksum> shared;
};
/// Fills the memory of `ranges` from the files on `threads` threads; a range whose types differ begins at a multiple of
/// the stored one's size. Ranks with disjoint ranges read no byte twice. A
/// block whose data are all in `ranges` is checked here; check_shared, which has to follow, checks the others. Throws
/// Error (data) as BlockReader.
[[nodiscard]] RangesRead read_ranges(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                                     const std::vector<StateRange>& ranges, int threads);
/// Joins the checksums of all ranks and checks part `part` of `parts` of their blocks; reads the bytes of such a block
/// that no rank has read. Opens each file once at most. Throws Error (data), E123.
void check_shared(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                  std::vector<RangeChecksum> checksums, int part, int parts);

}  // namespace tessera::io
