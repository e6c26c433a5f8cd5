// SPDX-License-Identifier: Apache-2.0
#pragma once
// runtime/base/rng.hpp's philox for a register of counters.

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// One counter, or one of its words, in each 64 bits.
typedef std::uint64_t Counters __attribute__((vector_size(vec_bytes)));
constexpr int counters_width = vec_bytes / 8;
constexpr int block_groups = 64;  // counters of a block, and so groups of four words

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

/// Registers computed together: one alone waits for its own products.
constexpr int philox_registers = 2, philox_counters = philox_registers * counters_width;

/// w[i][r]: word i of the counters of register r, in the lower 32 bits of the lanes; the upper ones are not defined.
struct PhiloxWords {
  Counters w[4][philox_registers];
};

/// Of counters first, first + 1, …
inline PhiloxWords philox_words(std::uint64_t key, std::uint64_t first) {
  PhiloxWords of;
  for (int r = 0; r < philox_registers; ++r) {
    of.w[0][r] = counters_from(first + static_cast<std::uint64_t>(r * counters_width));
    of.w[1][r] = of.w[0][r] >> 32;
    of.w[2][r] = of.w[3][r] = Counters{};
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
    for (int r = 0; r < philox_registers; ++r) {
      const Counters p0 = multiply_lower(of.w[0][r], 0xD2511F53), p1 = multiply_lower(of.w[2][r], 0xCD9E8D57);
      of.w[0][r] = p1 >> 32 ^ of.w[1][r] ^ k0;
      of.w[2][r] = p0 >> 32 ^ of.w[3][r] ^ k1;
      of.w[1][r] = p1;
      of.w[3][r] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return of;
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
