#pragma once
// Blocks: how the bytes of a state file are read and written by many at once, each with its checksum. Threads
// and system calls; no MPI, no HDF5.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/checkpoint/state.hpp"
#include "io/file/file.hpp"

namespace tessera::io {

/// The checksum of some bytes inside one block of a file, as their writer took it from memory.
struct RangeChecksum {
  std::uint32_t file = 0, crc = 0;
  std::uint64_t offset = 0, bytes = 0;
};

/// To and from the bytes that ranks send each other.
[[nodiscard]] std::string pack_checksums(const std::vector<RangeChecksum>& pieces);
[[nodiscard]] std::vector<RangeChecksum> unpack_checksums(const std::vector<std::string>& of_ranks);

/// Joins the pieces of all writers into the CRC of each block and of each data set of each file. `pieces` in any order,
/// none across the end of a block or of a data set. Throws Error (internal) at the first byte that nobody or two have
/// written.
void join_checksums(std::vector<RangeChecksum> pieces, std::vector<StateFile>& files);

/// Writes extents of memory to their places in files that exist, on threads of its own: past the page cache where the
/// file system can (O_DIRECT; straight from memory where it is as far from a multiple of 512 bytes as its place in the
/// file, else through a buffer), and syncs. Every byte comes from memory once: the checksum is taken just before. A
/// device's memory comes by way of the snapshot, pinned memory there, all of it and at the copy's own pace, or without
/// one through a buffer of each thread.
class BlockWriter {
 public:
  /// Starts at once; waits for what a device has been given that it copies from. `snapshot`: room that before_update
  /// may copy to (the sum of the extents' bytes); empty: it waits instead. `last` runs on one of the threads when all
  /// is written and synced; what it throws is the writer's error.
  BlockWriter(const std::vector<std::string>& paths, const std::vector<StateRange>& extents,
              std::span<std::byte> snapshot, int threads, std::function<void()> last = {});
  /// Waits for what is being written, gives up the rest.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;

  /// Everything of `unit` is written or copied when it returns, so that its memory may change. Of a device's it waits
  /// for the copy. Allocates nothing. Any thread.
  void before_update(int unit);
  /// All is on stable storage, or has failed.
  [[nodiscard]] bool finished() const { return finished_.load(std::memory_order_acquire); }
  /// Waits until then; throws the first error.
  void wait();
  /// After wait(): the checksums, in order of (file, offset).
  [[nodiscard]] const std::vector<RangeChecksum>& pieces() const { return pieces_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Bytes that before_update had to copy; of a device's memory all.
  [[nodiscard]] std::uint64_t copied() const { return copied_; }
  /// After wait(): processor time of its threads.
  [[nodiscard]] double cpu_seconds() const { return cpu_seconds_; }

 private:
  enum class State : unsigned char { pending, busy, done };
  struct Chunk {
    const std::byte* memory = nullptr;
    std::byte* snapshot = nullptr;  // its place there
    Device device;
    int unit = 0;
    State state = State::pending;
  };
  class Bounce;
  class Target;
  class DeviceCopy;
  void copy_from_device();
  void work();
  void write(std::size_t chunk, const std::byte* memory, Bounce& bounce);
  void end();

  std::function<void()> last_;
  std::vector<std::unique_ptr<Target>> targets_;
  std::vector<RangeChecksum> pieces_;  // of the chunk of the same index
  std::vector<Chunk> chunks_;
  std::vector<std::vector<std::size_t>> of_unit_;
  std::unique_ptr<DeviceCopy> copy_;  // where the memory is a device's, and there is a snapshot
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

/// Reads one state file block by block; no byte is handed out before its block's CRC has been checked. One thread.
class BlockReader {
 public:
  /// `file` must outlive it. Throws Error (data): not there, not of the size the manifest says (E109).
  BlockReader(const std::string& path, const StateFile& file);
  ~BlockReader();
  /// All bytes of a block; good until the next call. Throws Error (data), E123: file, block, and the data sets that lie
  /// in it.
  [[nodiscard]] std::span<const std::byte> block(std::uint64_t index);
  /// Bytes [first, last) of one block, not checked: the caller joins their checksum with those of
  /// others. Good until the next call.
  [[nodiscard]] std::span<const std::byte> unchecked(std::uint64_t first, std::uint64_t last);
  /// Bytes [offset, offset + out.size()), through the block that was read last where that holds them.
  void read(std::uint64_t offset, std::span<std::byte> out);
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  [[nodiscard]] std::span<const std::byte> fill(std::uint64_t first, std::uint64_t last);

  const StateFile* file_;
  File descriptor_;
  bool direct_ = false;
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> buffer_;
  std::uint64_t current_ = ~std::uint64_t{0}, bytes_read_ = 0;
};

/// What read_ranges has read: bytes from disk, and the checksums of its pieces of blocks that others hold parts of as
/// well.
struct RangesRead {
  std::uint64_t bytes = 0;
  std::vector<RangeChecksum> shared;
};
/// Fills the extents from the files on `threads` threads; no byte is read twice by ranks that hold different
/// ones. A block whose data are all in `extents` is checked here, the rest by check_shared, which has to follow.
/// Throws Error (data) as BlockReader.
[[nodiscard]] RangesRead read_ranges(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                                     const std::vector<StateRange>& extents, int threads);
/// Joins the pieces of all ranks and checks their blocks; what nobody has read of such a block is read
/// here. Throws Error (data), E123.
void check_shared(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                  std::vector<RangeChecksum> pieces);

}  // namespace tessera::io
