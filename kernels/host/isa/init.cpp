// SPDX-License-Identifier: Apache-2.0
// Normal numbers by Philox 4x32-10 and Box-Muller, in blocks of arrays so that the loops vectorize. Products and sums
// are not fused: the bits are the same on every instruction set. log and sin/cos to about 1e-11, far below fp32.
#include "kernels/host/init.hpp"

#include "kernels/host/isa/philox.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// The polynomial of these coefficients, the highest power's first, by Horner's rule in products and sums.
template <class... Rest>
inline double unfused_polynomial(double x, double first, Rest... rest) {
  ((first = first * x + rest), ...);
  return first;
}

/// √(-2 ln((w + ½)/2^32))
inline double radius(std::uint32_t w) {
  const double u = (static_cast<double>(static_cast<std::int32_t>(w ^ 0x80000000u)) + 2147483648.5) * 0x1p-32;
  using R = Real<double>;
  const auto bits = bits_as<std::uint64_t>(u);
  const std::uint64_t exponent = (bits + ((R::bias << 52) - R::sqrt_half)) >> 52;
  const double m = bits_as<double>(bits - ((exponent - R::bias) << 52));  // [√½, √2)
  const double e = bits_as<double>(bits_as<std::uint64_t>(R::magic) + exponent) - (R::magic + 1023.0);
  const double s = (m - 1.0) / (m + 1.0), q = s * s;
  const double p = unfused_polynomial(q, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0);
  return __builtin_sqrt(-2.0 * (e * 6.93147180559945309417e-01 + s * p));
}

/// cos and sin of 2π·w/2^32: quadrant and remainder are integers.
inline void unit_circle(std::uint32_t w, double& cosine, double& sine) {
  const std::uint32_t quadrant = (w + 0x20000000u) >> 30;
  const double t =
      static_cast<double>(static_cast<std::int32_t>(w - (quadrant << 30))) * (6.283185307179586476925 * 0x1p-32);
  const double q = t * t;
  const double s = unfused_polynomial(q, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6) * q * t + t;
  const double c = unfused_polynomial(q, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0);
  const bool odd = (quadrant & 1) != 0;
  const auto sine_sign = static_cast<std::uint64_t>(quadrant & 2) << 62,
             cosine_sign = static_cast<std::uint64_t>((quadrant + 1) & 2) << 62;
  sine = bits_as<double>(bits_as<std::uint64_t>(odd ? c : s) ^ sine_sign);
  cosine = bits_as<double>(bits_as<std::uint64_t>(odd ? s : c) ^ cosine_sign);
}

inline void normal_block(std::uint64_t key, std::uint64_t first, double std, float* out) {
  alignas(64) std::uint64_t words[4][block_counters];  // the lower 32 bits
  for (int g = 0; g < block_counters; g += philox_counters) {
    const PhiloxWords random = philox_words(key, first + static_cast<std::uint64_t>(g));
    for (int i = 0; i < 4; ++i) __builtin_memcpy(&words[i][g], random.w[i], sizeof random.w[i]);
  }
  alignas(64) float pair[2][2][block_counters];
  for (int half = 0; half < 2; ++half) {
    const std::uint64_t *wr = words[2 * half], *wa = words[2 * half + 1];
    float *even = pair[half][0], *odd = pair[half][1];
#pragma omp simd
    for (int g = 0; g < block_counters; ++g) {
      double cosine, sine;
      unit_circle(static_cast<std::uint32_t>(wa[g]), cosine, sine);
      const double r = std * radius(static_cast<std::uint32_t>(wr[g]));
      even[g] = static_cast<float>(r * cosine);
      odd[g] = static_cast<float>(r * sine);
    }
  }
  for (int g = 0; g < block_counters; ++g) {
    out[4 * g] = pair[0][0][g];
    out[4 * g + 1] = pair[0][1][g];
    out[4 * g + 2] = pair[1][0][g];
    out[4 * g + 3] = pair[1][1][g];
  }
}

void normal(std::uint64_t key, std::uint64_t first, std::int64_t groups, double std, float* out) {
  std::int64_t g = 0;
  for (; g + block_counters <= groups; g += block_counters)
    normal_block(key, first + static_cast<std::uint64_t>(g), std, out + 4 * g);
  if (g == groups) return;
  float rest[4 * block_counters];
  normal_block(key, first + static_cast<std::uint64_t>(g), std, rest);
  for (std::int64_t i = 0; i < 4 * (groups - g); ++i) out[4 * g + i] = rest[i];
}

}  // namespace

const Init init_table = {normal};

}  // namespace tessera::kernels::host::TESSERA_ISA
