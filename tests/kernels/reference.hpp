// SPDX-License-Identifier: Apache-2.0
#pragma once
// Helpers of the kernel tests: seeded numbers, errors, a guard around a workspace, threads and instruction sets.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/threads.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// n standard normal numbers times `spread`; a function of (seed, index).
template <class T>
std::vector<T> random_vector(std::int64_t n, std::uint64_t seed, double spread = 1) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<T>(spread * normal(seed, i));
  return v;
}

template <class T>
TensorView view(std::vector<T>& v, Shape shape) {
  EXPECT_EQ(static_cast<std::int64_t>(v.size()), shape.numel());
  return {v.data(), shape};
}
template <class T>
TensorView view(std::vector<T>& v) {
  return {v.data(), Shape{static_cast<std::int64_t>(v.size())}};
}

/// Largest |a - b| over the largest |b|; NaN counts as infinite.
template <class A, class B>
double relative_error(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, size = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= worst)) worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return worst / size;
}

/// A workspace of exactly `bytes`, full of NaN patterns, between canaries.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes) : bytes_(bytes), memory_(bytes + 2 * margin, 0xff) {}
  [[nodiscard]] TensorView view() {
    return {memory_.data() + margin, DType::u8, Shape{static_cast<std::int64_t>(bytes_)}};
  }
  [[nodiscard]] bool intact() const {
    for (std::size_t i = 0; i < margin; ++i) {
      if (memory_[i] != 0xff || memory_[margin + bytes_ + i] != 0xff) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t margin = 256;
  std::size_t bytes_;
  std::vector<std::uint8_t> memory_;
};

/// Threads and instruction set for a scope.
class Setting {
 public:
  explicit Setting(int num_threads) { set_threads(num_threads); }
  Setting(int num_threads, Isa set) : Setting(num_threads) { set_isa(set); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() {
    set_threads(threads_);
    set_isa(isa_);
  }

 private:
  int threads_ = threads();
  Isa isa_ = isa();
};

/// The instruction sets of this CPU.
inline std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets;
  const Setting restore(threads());
  for (const Isa set : all_isas) {
    try {
      set_isa(set);
      sets.push_back(set);
    } catch (const Error&) {}
  }
  return sets;
}

}  // namespace tessera::kernels
