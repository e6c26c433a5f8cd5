// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the benchmarks: random tokens, medians.

#include <algorithm>
#include <chrono>
#include <vector>

#include "io/data/dataset.hpp"
#include "jobs/bench/bench.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::jobs {

/// Random tokens; each is a function of its position.
class RandomTokens final : public io::TokenStream {
 public:
  RandomTokens(std::int64_t size, std::int64_t vocab) : size_(size), vocab_(vocab) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] =
          static_cast<std::int32_t>(uniform(7, static_cast<std::uint64_t>(first + i)) * static_cast<double>(vocab_));
    }
  }

 private:
  std::int64_t size_, vocab_;
};

/// Collective: seconds of the slowest rank.
double timed(World& world, const auto& work) {
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  world.run_and_agree(work);
  world.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

}  // namespace tessera::jobs
