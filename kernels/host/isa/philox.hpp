// SPDX-License-Identifier: Apache-2.0
#pragma once
// runtime/base/rng.hpp's philox for a block of counters, so that the loops vectorize.

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr int block_groups = 64;  // of four numbers

struct Words {
  alignas(64) std::uint32_t w[4][block_groups];
};

/// For counters first + g.
inline void philox_block(std::uint64_t key, std::uint64_t first, Words& words) {
  for (int g = 0; g < block_groups; ++g) {
    const std::uint64_t counter = first + static_cast<std::uint64_t>(g);
    words.w[0][g] = static_cast<std::uint32_t>(counter);
    words.w[1][g] = static_cast<std::uint32_t>(counter >> 32);
    words.w[2][g] = words.w[3][g] = 0;
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int g = 0; g < block_groups; ++g) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * words.w[0][g],
                          p1 = std::uint64_t{0xCD9E8D57} * words.w[2][g];
      words.w[0][g] = static_cast<std::uint32_t>(p1 >> 32) ^ words.w[1][g] ^ k0;
      words.w[2][g] = static_cast<std::uint32_t>(p0 >> 32) ^ words.w[3][g] ^ k1;
      words.w[1][g] = static_cast<std::uint32_t>(p1);
      words.w[3][g] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
