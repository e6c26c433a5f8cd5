// SPDX-License-Identifier: Apache-2.0
#pragma once
// The softmax of attention on tiles of scores: masks, soft caps, the online softmax of forward and what backward makes
// of recomputed scores. For host/isa only; internal linkage.

#include "kernels/host/attention.hpp"
#include "kernels/host/isa/attention_tiles.hpp"
#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t q_block = attention_q_block, kv_tile = attention_kv_tile;
static_assert(kv_tile % q_block == 0 && q_block % tile_rows == 0 && kv_tile % tile_rows == 0);
static_assert(kv_tile % tile_cols<float> == 0 && kv_tile % tile_cols<double> == 0);
template <class T>
constexpr std::int64_t score_stride = kv_tile + 64 / static_cast<std::int64_t>(sizeof(Acc<T>));  // odd, in cache lines

template <class T>
constexpr T infinity = static_cast<T>(__builtin_inf());

template <class T>
inline T largest_of_tile(const T* x, std::int64_t n) {  // n: whole registers
  Vec<T> m = load<T>(x);
  for (std::int64_t c = vec_width<T>; c < n; c += vec_width<T>) {
    const Vec<T> v = load<T>(x + c);
    m = v > m ? v : m;
  }
  T result = m[0];
  for (int i = 1; i < vec_width<T>; ++i) result = m[i] > result ? m[i] : result;
  return result;
}

/// S becomes cap·tanh(scale·S / cap), in the columns that online_softmax or softmax_backward reads.
template <class T>
[[gnu::noinline]] inline void soft_cap(const CausalTile& tile, Acc<T> scale, Acc<T> cap, Acc<T>* s) {
  const Acc<T> factor = scale / cap;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    Acc<T>* const x = s + r * score_stride<T>;
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), vec_width<T>);
    for (std::int64_t c = 0; c < end; c += vec_width<T>) store<Acc<T>>(x + c, cap * tanh(factor * load<Acc<T>>(x + c)));
  }
}

/// 1 - (s / cap)², the slope of a soft cap by the capped score; 0 of a masked one.
template <class T>
inline Vec<T> cap_slope(const Vec<T>& s, Acc<T> inverse_cap) {
  const Vec<T> t = s * inverse_cap, slope = splat(Acc<T>(1)) - t * t, zero{};
  return slope > zero ? slope : zero;
}

/// Online softmax: S becomes exp(scale·S - running max), as operands of P·V from the beginning of each row; updates
/// maxima and sums, and rescales the output to the new maximum.
template <class T>
[[gnu::noinline]] inline void online_softmax(const CausalTile& tile, Acc<T> scale, Acc<T>* s, Acc<T>* max, Acc<T>* sum,
                                             Acc<T>* o, std::int64_t width) {
  using A = Acc<T>;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    A* const x = s + r * score_stride<T>;
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), vec_width<T>);
    for (std::int64_t c = 0; c < tile.row_begin(r); ++c) x[c] = -infinity<A>;
    for (std::int64_t c = tile.row_columns(r); c < end; ++c) x[c] = -infinity<A>;
    const A tile_max = end > 0 ? scale * largest_of_tile(x, end) : -infinity<A>, old_max = max[r],
            new_max = tile_max > old_max ? tile_max : old_max;
    // A row without a key so far: 0 is subtracted, because -inf - -inf is NaN.
    const A base = new_max == -infinity<A> ? A(0) : new_max;
    Vec<T> sums{};
    for (std::int64_t c = 0; c < end; c += vec_width<T>) {
      const Vec<T> p = exp(multiply_add<A>(splat(scale), load<A>(x + c), splat(-base)));
      if constexpr (has_dot_product<T>) store<T>(reinterpret_cast<T*>(x) + c, p);
      else store<A>(x + c, rounded<T>(p));
      sums += p;
    }
    const A rescale = exp(old_max - base);
    sum[r] = sum[r] * rescale + sum_of<T>(sums);
    max[r] = new_max;
    if (rescale == 1 || old_max == -infinity<A>) continue;
    A* const row = o + r * width;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) row[c] *= rescale;
  }
}

/// Scores of a block, (q_block, score_stride) each, and what softmax_backward makes of them.
template <class T>
struct Scores {
  Acc<T>*s, *dp;
  Operand<T>* ds;  // dS as A of dS·K: rows ds_stride apart; dp itself, unless an operand is two numbers
};
template <class T>
constexpr std::int64_t ds_stride = has_dot_product<T> ? kv_tile / 2 + 16 : score_stride<T>;
/// From one row of P or dS as A of Pᵀ·dO or dSᵀ·Q to the next: a row holds the queries of an operand.
template <class T>
constexpr std::int64_t transposed_stride = numbers_of<Operand<T>>* score_stride<T>;

/// S becomes P = exp(S - lse) and dP becomes dS = P∘(dP - D), times the slope of a cap; zero where nothing is seen.
template <bool Capped, class T>
[[gnu::noinline]] inline void softmax_backward(const CausalTile& tile, [[maybe_unused]] Acc<T> inverse_cap,
                                               const Acc<T>* lse, const Acc<T>* delta, const Scores<T>& scores) {
  using A = Acc<T>;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    A* const x = scores.s + r * score_stride<T>;
    A* const y = scores.dp + r * score_stride<T>;
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), vec_width<T>);
    const A row_lse = lse[r], row_delta = delta[r];
    for (std::int64_t c = 0; c < end; c += vec_width<T>) {
      const Vec<T> s = load<A>(x + c), p = exp(s - row_lse);
      store<A>(x + c, rounded<T>(p));
      Vec<T> ds = p * (load<A>(y + c) - row_delta);
      if constexpr (Capped) ds *= cap_slope<T>(s, inverse_cap);
      store<A>(y + c, rounded<T>(ds));
    }
    for (std::int64_t c = 0; c < tile.row_begin(r); ++c) x[c] = y[c] = 0;
    for (std::int64_t c = tile.row_columns(r); c < end; ++c) x[c] = y[c] = 0;
  }
}

#if defined(__AVX512BF16__)
/// Two registers rounded to bf16, first[i] and second[i] in one operand. Subnormal numbers become zero, which the
/// dot-product instruction takes them for.
inline VecBits packed_bf16x2(const Vec<float>& first, const Vec<float>& second) {
  const auto both = reinterpret_cast<__m512i>(_mm512_maskz_cvtne2ps_pbh(~0U, second, first));
  const VecBits order = 0x100000 + 0x10001 * VecBits{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return reinterpret_cast<VecBits>(_mm512_maskz_permutexvar_epi16(~0U, reinterpret_cast<__m512i>(order), both));
}

/// As softmax_backward, for the dot-product instruction: P and dS with two queries in an operand, in the even rows of s
/// and dp; and dS with two keys in an operand. P = exp(scale·S - lse).
template <bool Capped>
[[gnu::noinline]] inline void softmax_backward_bf16x2(const CausalTile& tile, float scale,
                                                      [[maybe_unused]] float inverse_cap, const float* lse,
                                                      const float* delta, const Scores<bf16>& scores) {
  constexpr std::int64_t w = vec_width<float>, ld = score_stride<bf16>;
  for (std::int64_t r = 0; r < tile.rows; r += 2) {
    float *const s = scores.s + r * ld, *const dp = scores.dp + r * ld;
    bf16* const ds = reinterpret_cast<bf16*>(scores.ds + r * ds_stride<bf16>);
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), w);
    Vec<float> row_lse[2], row_delta[2];
    for (std::int64_t i = 0; i < 2; ++i) {
      const bool exists = r + i < tile.rows;
      row_lse[i] = splat(exists ? lse[r + i] : infinity<float>);
      row_delta[i] = splat(exists ? delta[r + i] : 0.0F);
      for (std::int64_t c = 0; exists && c < tile.row_begin(r + i); ++c)
        s[i * ld + c] = -infinity<float>, dp[i * ld + c] = 0;
      for (std::int64_t c = exists ? tile.row_columns(r + i) : 0; c < end; ++c)
        s[i * ld + c] = -infinity<float>, dp[i * ld + c] = 0;
    }
    for (std::int64_t c = 0; c < end; c += w) {
      Vec<float> p[2], dscore[2];
#pragma GCC unroll 2
      for (std::int64_t i = 0; i < 2; ++i) {
        const Vec<float> score = load<float>(s + i * ld + c);
        p[i] = exp(multiply_add<float>(splat(scale), score, -row_lse[i]));
        dscore[i] = p[i] * (load<float>(dp + i * ld + c) - row_delta[i]);
        if constexpr (Capped) dscore[i] *= cap_slope<float>(score, inverse_cap);
        const __m256bh rounded = _mm512_maskz_cvtneps_pbh(0xffff, dscore[i]);
        __builtin_memcpy(ds + 2 * i * ds_stride<bf16> + c, &rounded, sizeof rounded);
      }
      store<Bf16x2>(reinterpret_cast<Bf16x2*>(s + c), packed_bf16x2(p[0], p[1]));
      store<Bf16x2>(reinterpret_cast<Bf16x2*>(dp + c), packed_bf16x2(dscore[0], dscore[1]));
    }
  }
}
#endif

/// `scale`: what remains to be multiplied into scores.
template <bool Capped, class T>
inline void score_gradients(const CausalTile& tile, [[maybe_unused]] Acc<T> scale, Acc<T> cap, const Acc<T>* lse,
                            const Acc<T>* delta, const Scores<T>& scores) {
  if constexpr (Capped) soft_cap<T>(tile, scale, cap, scores.s);
  const Acc<T> inverse_cap = Capped ? 1 / cap : Acc<T>(0);
  if constexpr (has_dot_product<T>)
    softmax_backward_bf16x2<Capped>(tile, Capped ? 1 : scale, inverse_cap, lse, delta, scores);
  else softmax_backward<Capped, T>(tile, inverse_cap, lse, delta, scores);
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
