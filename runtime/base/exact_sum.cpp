// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/exact_sum.hpp"

#include <bit>
#include <cmath>

namespace tessera {

namespace {
constexpr int lowest_bit = -1088;  // weight of digit 0 is 2^lowest_bit; a multiple of 32 below 2^-1074
}

void ExactSum::add(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  if (field == 0x7ff) {
    ++counters_[num_digits];
    return;
  }
  // x = ±mantissa · 2^(exponent-1075). Subnormal numbers have the exponent of the smallest normal ones, and no hidden
  // bit.
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t mantissa = field == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const int shift = (field == 0 ? 1 : field) - 1075 - lowest_bit;  // 14 … 2059
  const auto digit = static_cast<std::size_t>(shift / 32);
  const auto magnitude = static_cast<unsigned __int128>(mantissa) << (shift % 32);
  const std::int64_t flip = -static_cast<std::int64_t>(bits >> 63);  // (p ^ flip) - flip is ±p
  for (std::size_t i = 0; i < 3; ++i) {
    const auto part = static_cast<std::int64_t>(static_cast<std::uint32_t>(magnitude >> (32 * i)));
    counters_[digit + i] += (part ^ flip) - flip;
  }
}

void ExactSum::add(const ExactSum& other) {
  for (std::size_t i = 0; i < num_counters; ++i) counters_[i] += other.counters_[i];
}

void ExactSum::carry() {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i < num_digits; ++i) {
    const std::int64_t digit = counters_[i];
    counters_[i] = (i + 1 < num_digits ? digit & 0xffffffff : digit) + carry;
    carry = digit >> 32;
  }
}

double ExactSum::value() const {
  if (nonfinite()) return std::nan("");
  // Carries upward so that every digit but the top one is in [0, 2^32), then negates if the sum is negative.
  std::array<std::int64_t, num_digits> digits{};
  bool negative = false;
  for (int pass = 0; pass < 2; ++pass) {
    std::int64_t carry = 0;
    for (std::size_t i = 0; i < num_digits; ++i) {
      const std::int64_t v = (negative ? -counters_[i] : counters_[i]) + carry;
      digits[i] = i + 1 < num_digits ? (v & 0xffffffff) : v;
      carry = v >> 32;
    }
    if (digits[num_digits - 1] >= 0) break;
    negative = true;
  }
  std::size_t top = num_digits;
  while (top > 0 && digits[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The top 96 bits as an integer, with a sticky bit for the rest; long double would depend on the machine.
  unsigned __int128 head = 0;
  for (std::size_t i = 0; i < 3; ++i)
    head = (head << 32) | (top >= i + 1 ? static_cast<std::uint32_t>(digits[top - 1 - i]) : 0u);
  bool sticky = false;
  for (std::size_t i = 0; i + 3 < top; ++i) sticky |= digits[i] != 0;
  int width = 0;
  while (width < 128 && (head >> width) != 0) ++width;
  int scale = lowest_bit + 32 * (static_cast<int>(top) - 3);
  if (width > 62) {
    const int drop = width - 62;
    sticky |= (head & ((static_cast<unsigned __int128>(1) << drop) - 1)) != 0;
    head >>= drop;
    scale += drop;
  }
  const auto bits =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(head) << 1 | static_cast<std::uint64_t>(sticky));
  const double magnitude = std::ldexp(static_cast<double>(bits), scale - 1);
  return negative ? -magnitude : magnitude;
}

}  // namespace tessera
