#pragma once
// ExactSum: a sum of doubles that does not depend on the order, because it does not round until it is read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

/// Fixed-point accumulator over the whole range of double (Kulisch's): 32-bit digits kept in 64-bit integers, so that
/// two accumulators (of two ranks) are summed digit by digit as integers, in any order, without carries (up to 2^30
/// additions). Adding an infinity or NaN sets `nonfinite`, which reading turns into NaN.
class ExactSum {
 public:
  static constexpr std::size_t num_digits = 68;             // 2^-1074 … 2^1024, and room above
  static constexpr std::size_t num_words = num_digits + 1;  // digits and the count of non-finite terms

  void clear() { words_.fill(0); }
  void add(double x);
  void add(const ExactSum& other);
  /// The sum, correctly rounded to double up to a last-place tie; NaN if a term was not finite.
  [[nodiscard]] double value() const;
  [[nodiscard]] bool nonfinite() const { return words_[num_digits] != 0; }
  /// The integers to add over ranks.
  [[nodiscard]] std::span<std::int64_t, num_words> words() { return words_; }
  [[nodiscard]] std::span<const std::int64_t, num_words> words() const { return words_; }

 private:
  std::array<std::int64_t, num_words> words_{};
};

}  // namespace tessera
