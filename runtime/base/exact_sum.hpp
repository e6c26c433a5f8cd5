// SPDX-License-Identifier: Apache-2.0
#pragma once
// ExactSum: a sum of doubles that does not depend on their order, since it rounds only when it is read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

/// A Kulisch accumulator: fixed point over the whole range of double. Its 32-bit digits are kept in int64, so that the
/// accumulators of two ranks are added digit by digit as integers, in any order, without carries. An infinity or NaN
/// sets `nonfinite`, which reads as NaN.
///
/// Bound: adding a double changes a digit by less than 2^32, and after carry() a digit is less than 1.5·2^32 in
/// magnitude. So a sum takes max_additions doubles before it must carry, and max_additions carried sums (of units, of
/// ranks) add up without overflow. Beyond that digits overflow undetected: who adds more carries in between.
class ExactSum {
 public:
  static constexpr std::int64_t max_additions = std::int64_t{1} << 30;
  static constexpr std::size_t num_digits = 68;                // 2^-1074 … 2^1024, and spare bits
  static constexpr std::size_t num_counters = num_digits + 1;  // the digits, and the number of non-finite inputs

  void clear() { counters_.fill(0); }
  void add(double x);
  void add(const ExactSum& other);
  /// Moves what a digit holds beyond 32 bits to the next digit. The value stays the same.
  void carry();
  /// The sum rounded to double, correct up to a tie in the last place; NaN if an input was not finite.
  [[nodiscard]] double value() const;
  [[nodiscard]] bool nonfinite() const { return counters_[num_digits] != 0; }
  /// The integers to add over ranks.
  [[nodiscard]] std::span<std::int64_t, num_counters> counters() { return counters_; }
  [[nodiscard]] std::span<const std::int64_t, num_counters> counters() const { return counters_; }

 private:
  std::array<std::int64_t, num_counters> counters_{};
};

}  // namespace tessera
