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

template <class T, class C>
double measure(const MeasuredGemm& of, int repeats) {
  TESSERA_ASSERT(of.m > 0 && of.n > 0 && of.k > 0 && repeats > 0);
  const auto make = []<class Number>(Number, std::int64_t count) {
    auto memory = std::make_unique_for_overwrite<Number[]>(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      memory[static_cast<std::size_t>(i)] = Number(static_cast<float>(i % 13 - 6) / 8);
    return memory;
  };
  const auto a = make(T{}, of.m * of.k), b = make(T{}, of.k * of.n);
  const auto c = make(C{}, of.m * of.n);
  const GemmArgs args{.a = {a.get(), of.trans_a ? Shape{of.k, of.m} : Shape{of.m, of.k}},
                      .b = {b.get(), of.trans_b ? Shape{of.n, of.k} : Shape{of.k, of.n}},
                      .c = {c.get(), {of.m, of.n}},
                      .trans_a = of.trans_a,
                      .trans_b = of.trans_b};
  const double flops = 2.0 * static_cast<double>(of.m) * static_cast<double>(of.n) * static_cast<double>(of.k);
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    gemm(args, host_stream);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 1e-9 * flops / seconds.count());
  }
  return best;
}

}  // namespace

double measure_gemm(const MeasuredGemm& of, int repeats) {
  if (of.dtype == DType::f32) return measure<float, float>(of, repeats);
  TESSERA_ASSERT(of.dtype == DType::bf16, "%s is not measured", name_of(of.dtype));
  return of.fp32_result ? measure<bf16, float>(of, repeats) : measure<bf16, bf16>(of, repeats);
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
