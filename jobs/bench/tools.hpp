// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the benchmarks: random tokens and numbers, times, medians.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "io/data/dataset.hpp"
#include "jobs/bench/bench.hpp"
#include "kernels/convert.hpp"
#include "runtime/base/mapping.hpp"
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

/// Random numbers of [-1, 1) as fp32 or a 16-bit type, in huge pages, as models' memory is.
[[nodiscard]] inline Mapping random_numbers(DType dtype, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  Mapping memory = Mapping::anonymous(bytes, "tessera bench");
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(2 * uniform(5, i) - 1);
  if (dtype == DType::f32) std::memcpy(memory.data(), values.data(), bytes);
  else
    kernels::convert({.from = {values.data(), Shape{count}}, .to = {memory.data(), dtype, Shape{count}}}, host_stream);
  return memory;
}

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
