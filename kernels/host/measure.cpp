// SPDX-License-Identifier: Apache-2.0
// Measures the speed of GEMM and of reading memory, with this rank's threads; copies it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "kernels/bandwidth.hpp"
#include "kernels/gemm.hpp"
#include "kernels/host/bandwidth.hpp"
#include "kernels/host/parallel.hpp"
#include "runtime/base/mapping.hpp"

namespace tessera::kernels {
namespace {

template <class T>
double measure(std::int64_t m, std::int64_t n, std::int64_t k, int repeats) {
  TESSERA_ASSERT(m > 0 && n > 0 && k > 0 && repeats > 0);
  const auto make = [](std::int64_t count) {
    auto memory = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      memory[static_cast<std::size_t>(i)] = T(static_cast<float>(i % 13 - 6) / 8);
    return memory;
  };
  const auto a = make(m * k), b = make(k * n), c = make(m * n);
  const GemmArgs args{.a = {a.get(), {m, k}}, .b = {b.get(), {k, n}}, .c = {c.get(), {m, n}}};
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    gemm(args, host_stream);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best,
                    2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds.count());
  }
  return best;
}

}  // namespace

double measure_sgemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats) {
  return measure<float>(m, n, k, repeats);
}
double measure_bf16_gemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats) {
  return measure<bf16>(m, n, k, repeats);
}

double measure_read_bandwidth(std::size_t bytes, int repeats) {
  TESSERA_ASSERT(bytes >= 64 && repeats > 0);
  const Mapping memory = Mapping::anonymous(bytes, "tessera bandwidth");
  auto* const words = reinterpret_cast<std::uint64_t*>(memory.data());
  const auto count = static_cast<std::int64_t>(bytes / sizeof(std::uint64_t));
  const auto each_range = [count](const auto& f) {
    host::parallel_ranges(count, 512, [&](std::int64_t begin, std::int64_t end) { f(begin, end - begin); });
  };
  each_range([words](std::int64_t begin, std::int64_t n) { std::fill_n(words + begin, n, 1); });  // by its thread
  std::atomic<std::uint64_t> seen{0};
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    each_range([&](std::int64_t begin, std::int64_t n) { seen |= host::bandwidth().read(words + begin, n); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 1e-9 * static_cast<double>(count) * sizeof(std::uint64_t) / seconds.count());
  }
  TESSERA_ASSERT(seen == 1);  // so that the compiler keeps the reads
  return best;
}

void copy_words(const std::uint64_t* from, std::uint64_t* to, std::int64_t count) {
  host::parallel_ranges(count, 512, [&](std::int64_t begin, std::int64_t end) {
    host::bandwidth().copy(from + begin, to + begin, end - begin);
  });
}

}  // namespace tessera::kernels
