// SPDX-License-Identifier: Apache-2.0
#pragma once
// runtime/base/rng.hpp's philox for several counters at once.

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// One counter, or one of its words, in each 64 bits.
typedef std::uint64_t Counters __attribute__((vector_size(vec_bytes)));
inline constexpr int counters_width = vec_bytes / 8;

/// first, first + 1, …
inline Counters counters_from(std::uint64_t first) {
  Counters lanes;
  for (int i = 0; i < counters_width; ++i) lanes[i] = static_cast<std::uint64_t>(i);
  return lanes + first;
}

/// 64-bit products of the lower 32 bits of each lane and `factor`.
inline Counters multiply_lower(const Counters& x, std::uint32_t factor) {
#if defined(__AVX512F__)
  return reinterpret_cast<Counters>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x), _mm512_set1_epi64(factor)));
#elif defined(__AVX2__)
  return reinterpret_cast<Counters>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x), _mm256_set1_epi64x(factor)));
#else
  return (x & 0xffffffff) * factor;
#endif
}

/// Several registers together hide the latency of the multiplications.
inline constexpr int philox_registers = 4, philox_counters = philox_registers * counters_width;
/// Counters of a block, which callers keep in an array.
inline constexpr int block_counters = 64;
static_assert(block_counters % philox_counters == 0);

/// w[i][r]: word i of the counters of register r, in the lower 32 bits of the lanes; the upper ones are not defined.
struct PhiloxWords {
  Counters w[4][philox_registers];
};

/// Of counters first … first + philox_counters - 1.
inline PhiloxWords philox_words(std::uint64_t key, std::uint64_t first) {
  PhiloxWords words;
  for (int r = 0; r < philox_registers; ++r) {
    words.w[0][r] = counters_from(first + static_cast<std::uint64_t>(r * counters_width));
    words.w[1][r] = words.w[0][r] >> 32;
    words.w[2][r] = words.w[3][r] = Counters{};
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (int r = 0; r < philox_registers; ++r) {
      const Counters p0 = multiply_lower(words.w[0][r], 0xD2511F53), p1 = multiply_lower(words.w[2][r], 0xCD9E8D57);
      words.w[0][r] = p1 >> 32 ^ words.w[1][r] ^ k0;
      words.w[2][r] = p0 >> 32 ^ words.w[3][r] ^ k1;
      words.w[1][r] = p1;
      words.w[3][r] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return words;
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
