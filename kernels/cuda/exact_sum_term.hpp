// SPDX-License-Identifier: Apache-2.0
#pragma once
// A term of an ExactSum (a Kulisch accumulator, runtime/base/exact_sum.hpp) as three integers to add, for host and
// device.

#include "kernels/cuda/element.hpp"
#include "runtime/base/exact_sum.hpp"

namespace tessera::kernels::cuda {

/// part[i] is added to word digit + i. A non-finite term adds 1 to the last word.
struct ExactSumTerm {
  int digit;
  std::int64_t part[3];
};

TESSERA_HD ExactSumTerm exact_sum_term(double x) {
  const auto bits = bits_as<std::uint64_t>(x);
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  if (field == 0x7ff) return {static_cast<int>(ExactSum::num_digits) - 2, {0, 0, 1}};
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t mantissa = field == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const int bit = (field == 0 ? 1 : field) - 1075 + 1088;  // digit 0 weighs 2^-1088
  const int shift = bit % 32;
  const std::uint64_t low = mantissa << shift, high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const std::int64_t flip = -static_cast<std::int64_t>(bits >> 63);  // (p ^ flip) - flip is ±p
  const std::int64_t p0 = static_cast<std::int64_t>(low & 0xffffffffu), p1 = static_cast<std::int64_t>(low >> 32),
                     p2 = static_cast<std::int64_t>(high);
  return {bit / 32, {(p0 ^ flip) - flip, (p1 ^ flip) - flip, (p2 ^ flip) - flip}};
}

}  // namespace tessera::kernels::cuda
