// 12×32 of C in 24 registers: per pair of k, two registers of B and twelve broadcasts of A feed 24 vdpbf16ps. Compiled
// for AVX512-BF16 by itself and called only where the CPU has it.
#include "kernels/host/pair_tile.hpp"

#include <immintrin.h>

namespace tessera::kernels::host::avx512_bf16 {

void pair_tile(const PairTile& tile) {
  constexpr int rows = vector_shape.rows, columns = vector_shape.columns;
  static_assert(columns == 32 && vector_shape.group == 1);
  __m512 low[rows], high[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) low[r] = high[r] = _mm512_setzero_ps();
  const std::uint32_t *a = tile.a, *b = tile.b;
  for (std::int64_t p = 0; p < tile.pairs; ++p, a += rows, b += columns) {
    const auto b_low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b)),
               b_high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 16));
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[r])));
      low[r] = _mm512_dpbf16_ps(low[r], x, b_low);
      high[r] = _mm512_dpbf16_ps(high[r], x, b_high);
    }
  }
  const __m512 alpha = _mm512_set1_ps(tile.alpha);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    float* const c = tile.c + r * tile.ldc;
    const __m512 old_low = tile.add ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
    const __m512 old_high = tile.add ? _mm512_loadu_ps(c + 16) : _mm512_setzero_ps();
    _mm512_storeu_ps(c, _mm512_fmadd_ps(alpha, low[r], old_low));
    _mm512_storeu_ps(c + 16, _mm512_fmadd_ps(alpha, high[r], old_high));
  }
}

}  // namespace tessera::kernels::host::avx512_bf16
