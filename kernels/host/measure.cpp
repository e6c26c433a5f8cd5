// SPDX-License-Identifier: Apache-2.0
// Measures the speed of GEMM, and of reading and copying memory, with this rank's threads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
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

/// An array in huge pages, as models' memory is, which are first touched by the thread that will use them.
class Words {
 public:
  explicit Words(std::size_t bytes)
      : count_(static_cast<std::int64_t>(bytes / sizeof(std::uint64_t))),
        memory_(Mapping::anonymous(bytes, "tessera bandwidth")) {
    TESSERA_ASSERT(bytes >= 64);
    each_range([this](std::int64_t begin, std::int64_t n) { std::fill_n(at(begin), n, 1); });
  }
  [[nodiscard]] std::uint64_t* at(std::int64_t i) const { return reinterpret_cast<std::uint64_t*>(memory_.data()) + i; }
  [[nodiscard]] double bytes() const { return static_cast<double>(count_) * sizeof(std::uint64_t); }
  template <class F>
  void each_range(const F& f) const {
    host::parallel_ranges(count_, 512, [&](std::int64_t begin, std::int64_t end) { f(begin, end - begin); });
  }

 private:
  std::int64_t count_;
  Mapping memory_;
};

/// The shortest of `repeats` calls, in seconds.
template <class F>
double shortest(int repeats, const F& f) {
  TESSERA_ASSERT(repeats > 0);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
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
  const Words words(bytes);
  std::atomic<std::uint64_t> seen{0};
  const double seconds = shortest(repeats, [&] {
    words.each_range([&](std::int64_t begin, std::int64_t n) { seen |= host::bandwidth().read(words.at(begin), n); });
  });
  TESSERA_ASSERT(seen == 1);  // so that the compiler keeps the reads
  return words.bytes() / seconds / 1e9;
}

double measure_copy_bandwidth(std::size_t bytes, int repeats) {
  const Words from(bytes), to(bytes);
  const double seconds = shortest(repeats, [&] {
    from.each_range(
        [&](std::int64_t begin, std::int64_t n) { host::bandwidth().copy(from.at(begin), to.at(begin), n); });
  });
  return 2 * from.bytes() / seconds / 1e9;
}

}  // namespace tessera::kernels
