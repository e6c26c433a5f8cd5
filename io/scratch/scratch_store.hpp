// SPDX-License-Identifier: Apache-2.0
#pragma once
// ScratchStore: states of units in a scratch file of this rank, read and written by a pool of threads, with a CRC32C of
// each block.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/scratch/scratch_file.hpp"

namespace tessera::io {

/// What is read and written together: one state of one unit.
struct ScratchRegion {
  std::string unit, state;  // for errors: "h.3", "exp_avg"
  std::uint64_t bytes = 0;
};

/// What a store has moved so far. A direction's seconds are those in which it had something to do.
struct ScratchTimes {
  std::uint64_t bytes_read = 0, bytes_written = 0;
  double read_seconds = 0, write_seconds = 0;
  double busy_seconds = 0;  // of either

  /// What was moved since.
  [[nodiscard]] ScratchTimes since(const ScratchTimes& earlier) const {
    return {bytes_read - earlier.bytes_read, bytes_written - earlier.bytes_written, read_seconds - earlier.read_seconds,
            write_seconds - earlier.write_seconds, busy_seconds - earlier.busy_seconds};
  }
  void add(const ScratchTimes& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    read_seconds += other.read_seconds;
    write_seconds += other.write_seconds;
    busy_seconds += other.busy_seconds;
  }
};

/// A read or a write that was begun. Copies stand for the same one.
class ScratchTransfer {
 public:
  /// None: it is done.
  ScratchTransfer() = default;
  /// True if wait() would return at once.
  [[nodiscard]] bool done() const;
  /// Blocks until the memory is filled (read), or may be used again (write). Throws Error (data): what failed, with the
  /// file, the unit, the state and the bytes of it. Every later wait() throws the same.
  void wait() const;

 private:
  friend class ScratchStore;
  struct Progress;
  std::shared_ptr<Progress> progress_;
};

/// Any thread may call it. Transfers of one region must not overlap in time if one of them writes; those of several
/// regions may. Those of a direction begin in the order of the calls; while both have something to do, they take turns.
class ScratchStore {
 public:
  /// Bytes of a block: the unit of a disk request and of a checksum. 1 MiB: larger ones are not faster (decision 0040).
  static constexpr std::uint64_t block_bytes = 1u << 20;
  /// More than a disk needs: while a step computes, a thread whose request is done may wait for a core.
  static constexpr int default_threads = 8;

  struct Spec {
    std::string directory;
    int rank = 0;
    std::vector<ScratchRegion> regions;
    int threads = default_threads;
    std::string option = "--nvme_path";  // for errors
  };
  /// Makes the file and allocates its space; removes scratch files of dead runs beside it. Throws Error (data).
  explicit ScratchStore(Spec spec);
  /// Waits for what was begun, and removes the file.
  ~ScratchStore();
  ScratchStore(const ScratchStore&) = delete;

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] ScratchMedium medium() const { return file_.medium(); }
  [[nodiscard]] const std::vector<ScratchRegion>& regions() const { return spec_.regions; }
  [[nodiscard]] ScratchTimes times() const;

  /// Begins to write bytes [first, first + bytes.size()) of a region. `first` is a multiple of block_bytes; the range
  /// ends at one or with the region. `bytes` begins on a page of memory (direct_alignment) and must stay unchanged
  /// until the transfer is done. Nothing is copied but the last partial page of a region.
  [[nodiscard]] ScratchTransfer write(std::size_t region, std::span<const std::byte> bytes, std::uint64_t first = 0);
  /// Begins to read into `bytes`, by the same rules. A block that was never written is zero.
  [[nodiscard]] ScratchTransfer read(std::size_t region, std::span<std::byte> bytes, std::uint64_t first = 0);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Direction : unsigned char { read, write };
  struct Task {
    std::shared_ptr<ScratchTransfer::Progress> transfer;
    Direction direction = Direction::read;
    std::size_t region = 0;
    std::uint64_t block = 0;  // of the region
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  /// Time in which a direction, or both, has tasks.
  struct Busy {
    int tasks = 0;
    Clock::time_point since;
    double seconds = 0;
    void begin(Clock::time_point now);
    void end(Clock::time_point now);
    [[nodiscard]] double until(Clock::time_point now) const;
  };
  ScratchTransfer begin(Direction direction, std::size_t region, std::byte* memory, std::size_t bytes,
                        std::uint64_t first);
  void work();
  [[nodiscard]] Task take();
  void move(const Task& task, const DirectBuffer& page);
  [[noreturn]] void fail(const Task& task, const std::string& what, int error_number) const;
  [[nodiscard]] static std::vector<std::uint64_t> place(const std::vector<ScratchRegion>& regions);
  void stop();

  struct Block {
    std::uint32_t crc = 0;
    bool written = false;
  };

  Spec spec_;
  std::vector<std::uint64_t> offsets_;  // of regions in the file; one more for the end
  ScratchFile file_;
  std::vector<std::vector<Block>> blocks_;  // in memory: a lost write is found too

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_[2];         // by direction
  Direction next_ = Direction::read;  // takes the next turn
  bool stop_ = false;
  std::uint64_t bytes_[2] = {};
  Busy busy_[2], either_;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::io
