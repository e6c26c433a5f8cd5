#include "kernels/bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

double measure_read_bandwidth(std::size_t bytes, int repeats) {
  TESSERA_ASSERT(bytes >= 64 && repeats > 0);
  const auto words = static_cast<std::int64_t>(bytes / sizeof(std::uint64_t));
  const auto memory = std::make_unique_for_overwrite<std::uint64_t[]>(static_cast<std::size_t>(words));
  // Each page is first touched by the thread that will read it.
  host::parallel_ranges(words, 512, [&](std::int64_t begin, std::int64_t end) {
    std::fill(memory.get() + begin, memory.get() + end, 1);
  });
  std::atomic<std::uint64_t> seen{0};
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    host::parallel_ranges(words, 512, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t any = 0;
      for (std::int64_t w = begin; w < end; ++w) any |= memory[static_cast<std::size_t>(w)];
      seen |= any;
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(words) * sizeof(std::uint64_t) / seconds.count() / 1e9);
  }
  TESSERA_ASSERT(seen == 1);  // so that nobody leaves the reading out
  return best;
}

}  // namespace tessera::kernels
