// SPDX-License-Identifier: Apache-2.0
#pragma once
// The normal numbers of host/isa/init.cpp for one group of four elements, for host and device: the same bits.

#include "kernels/cuda/element.hpp"

namespace tessera::kernels::cuda {

struct PhiloxWords {
  std::uint32_t w[4];
};

/// runtime/base/rng.hpp's philox for a counter below 2^64.
TESSERA_HD PhiloxWords philox_words(std::uint64_t key, std::uint64_t counter) {
  auto c0 = static_cast<std::uint32_t>(counter), c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = 0, c3 = 0;
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0, p1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The polynomial of these coefficients, the highest power's first, as in host/isa/init.cpp: in products and sums.
template <class... Rest>
TESSERA_HD double polynomial(double x, double first, Rest... rest) {
  ((first = add(mul(first, x), rest)), ...);
  return first;
}

/// √(-2 ln((w + ½)/2^32))
TESSERA_HD double normal_radius(std::uint32_t w) {
  const double u = mul(add(static_cast<double>(static_cast<std::int32_t>(w ^ 0x80000000u)), 2147483648.5), 0x1p-32);
  const auto bits = bits_as<std::uint64_t>(u);
  const std::uint64_t bias = std::uint64_t{1023} << 52, sqrt_half = 0x3fe6a09e667f3bcd;
  const std::uint64_t exponent = (bits + (bias - sqrt_half)) >> 52;
  const double m = bits_as<double>(bits - ((exponent - 1023) << 52));  // [√½, √2)
  const double e = static_cast<double>(static_cast<std::int64_t>(exponent) - 1023);
  const double s = div(sub(m, 1.0), add(m, 1.0)), q = mul(s, s);
  const double p = polynomial(q, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0);
  return root(mul(-2.0, add(mul(e, 6.93147180559945309417e-01), mul(s, p))));
}

struct Circle {
  double cosine, sine;
};
/// Cosine and sine of 2π·w/2^32; quadrant and remainder are integers.
TESSERA_HD Circle unit_circle(std::uint32_t w) {
  const std::uint32_t quadrant = (w + 0x20000000u) >> 30;
  const double t =
      mul(static_cast<double>(static_cast<std::int32_t>(w - (quadrant << 30))), 6.283185307179586476925 * 0x1p-32);
  const double q = mul(t, t);
  const double s =
      add(mul(mul(polynomial(q, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6), q), t), t);
  const double c = polynomial(q, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0);
  const bool odd = (quadrant & 1u) != 0;
  const double sine = odd ? c : s, cosine = odd ? s : c;
  return {(quadrant + 1) & 2u ? -cosine : cosine, quadrant & 2u ? -sine : sine};
}

/// Elements 4·group … 4·group + 3 of the sequence of `key`, times std.
TESSERA_HD void normal_group(std::uint64_t key, std::uint64_t group, double std, float (&out)[4]) {
  const PhiloxWords words = philox_words(key, group);
  for (int half = 0; half < 2; ++half) {
    const Circle at = unit_circle(words.w[2 * half + 1]);
    const double r = mul(std, normal_radius(words.w[2 * half]));
    out[2 * half] = static_cast<float>(mul(r, at.cosine));
    out[2 * half + 1] = static_cast<float>(mul(r, at.sine));
  }
}

}  // namespace tessera::kernels::cuda
