#pragma once
// The engine that carries a conversion out: each rank makes disjoint blocks of the output, balanced by bytes, from
// whatever bytes of the source they need. Memory does not depend on the model's size. What the files are, and how they
// come to be final, is not known here.

#include <functional>
#include <mutex>

#include "io/convert/block_converter.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

struct ConvertProgress {
  std::uint64_t done = 0, total = 0;  // bytes of the output, over all ranks
  double seconds = 0;
};
struct ConvertOptions {
  int threads = 2;                                       // of a rank
  bool checksums = false;                                // pieces() are wanted
  std::function<void(const ConvertProgress&)> progress;  // called on every rank, now and then
};

/// Blocks of the source that a rank keeps. With three buffers a thread that is all a conversion takes besides
/// names: about 110 MiB at 2 threads.
inline constexpr int cache_slots = 20;
/// What `convert` promises of a rank's memory, program and libraries included, whatever the model's size.
inline constexpr std::uint64_t convert_memory_bound = std::uint64_t{256} << 20;

class Conversion {
 public:
  /// Throws Error (data) as BlockConverter does. `source` must outlive it.
  Conversion(const TensorCatalog& source, ConversionPlan plan, ConvertOptions options);
  Conversion(const Conversion&) = delete;

  /// Collective: writes and syncs. Throws Error (data) on every rank alike: the system's errors, and
  /// those of BlockConverter::assemble.
  void write(World& world);
  /// Collective: reads both sides again, other blocks on other ranks and in other order, and compares every element.
  /// Throws Error (data), E144, naming the tensors that differ.
  void verify(World& world);

  /// Of what this rank has written, in no order; empty unless asked for.
  [[nodiscard]] const std::vector<RangeChecksum>& pieces() const { return pieces_; }
  /// Of the output that the plan fills, over all ranks.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// From the source, by this rank.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Job {
    int file = 0;
    std::uint64_t block = 0, bytes = 0;
  };
  struct Thread;
  enum class Pass : unsigned char { write, verify };
  [[nodiscard]] std::vector<Job> share(int rank, int ranks) const;
  /// Collective: all jobs, on threads; agrees on errors every so often.
  void run(World& world, const std::vector<Job>& jobs, Pass way);
  void run_part(std::span<const Job> jobs, Pass way, BlockCache& cache, std::vector<std::unique_ptr<Thread>>& threads);
  void write_block(const Job& job, BlockCache& cache, Thread& thread);
  void compare_block(const Job& job, BlockCache& cache, Thread& thread);
  void sync(const std::vector<Job>& jobs) const;

  const TensorCatalog& source_;
  ConversionPlan plan_;
  BlockConverter block_converter_;
  ConvertOptions options_;
  std::vector<Job> jobs_;  // of all ranks, in the order of (file, block)
  std::uint64_t bytes_ = 0, bytes_read_ = 0;
  std::mutex mutex_;  // of what follows, while threads run
  std::vector<RangeChecksum> pieces_;
  std::vector<std::string> different_;  // names of tensors
};

}  // namespace tessera::io
