// SPDX-License-Identifier: Apache-2.0
// Products of halves on register tiles: a panel of B stays in the inner cache while all panels of A
// pass, which the outer cache holds.
#include "kernels/host/half_panels.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr int lanes_f32 = static_cast<int>(vec_width<float>), a_rows = tile_rows,
              b_columns = static_cast<int>(tile_cols<float>);
static_assert(a_rows <= most_panel_rows && b_columns <= most_panel_columns && lanes_f32 <= panel_slack);

/// Registers that hold the `Width` lines of a panel at one k.
template <int Width>
constexpr int groups_of = (Width + lanes_f32 - 1) / lanes_f32;

/// Stores lines g·lanes_f32 … of one k. What passes the end of the panel's k is overwritten by the next one, or is
/// slack.
template <int Width>
[[gnu::always_inline]] inline void store_group(float* to, int g, const Vec<float>& v) {
  if (groups_of<Width> == 1 || Width % lanes_f32 == 0 || g + 1 < groups_of<Width>)
    return store<float>(to + g * lanes_f32, v);
  for (int i = 0; g * lanes_f32 + i < Width; ++i) to[g * lanes_f32 + i] = v[i];
}

/// One whole panel from lines whose k's follow one another; `next`: whether another follows, which
/// is then on its way to the cache.
template <int Width, class T>
void pack_along(const PanelSource<T>& s, const T* from, bool next, float* to) {
  std::int64_t k = 0;
  for (; k + lanes_f32 <= s.depth; k += lanes_f32) {
    if (next && k * static_cast<std::int64_t>(sizeof(T)) % 64 == 0)
      for (int r = 0; r < Width; ++r) __builtin_prefetch(from + (Width + r) * s.ld + k);
#pragma GCC unroll 4
    for (int g = 0; g < groups_of<Width>; ++g) {
      Vec<float> square[lanes_f32];
#pragma GCC unroll 16
      for (int i = 0; i < lanes_f32; ++i)
        square[i] = g * lanes_f32 + i < Width ? load<T>(from + (g * lanes_f32 + i) * s.ld + k) : Vec<float>{};
      transpose<float>(square);
#pragma GCC unroll 16
      for (int i = 0; i < lanes_f32; ++i) store_group<Width>(to + (k + i) * Width, g, square[i]);
    }
  }
  for (; k < s.depth; ++k)
    for (int r = 0; r < Width; ++r) to[k * Width + r] = widen(from[r * s.ld + k]);
}

/// All whole panels of a matrix whose lines follow one another, one k after the other.
template <int Width, class T>
void pack_across(const PanelSource<T>& s, std::int64_t whole, float* to) {
  for (std::int64_t k = 0; k < s.depth; ++k) {
    const T* const from = s.data + k * s.ld;
    if (k + 4 < s.depth)
      for (std::int64_t r = 0; r < s.lines; r += 64 / static_cast<std::int64_t>(sizeof(T)))
        __builtin_prefetch(from + 4 * s.ld + r);
    float* out = to + k * Width;
    for (std::int64_t r = 0; r < whole; r += Width, out += Width * s.depth) {
      if ((k + 1 < s.depth || Width % lanes_f32 == 0) && r + groups_of<Width> * lanes_f32 <= s.lines) {
#pragma GCC unroll 4
        for (int g = 0; g < groups_of<Width>; ++g) store_group<Width>(out, g, load<T>(from + r + g * lanes_f32));
      } else {
        for (int i = 0; i < Width; ++i) out[i] = widen(from[r + i]);
      }
    }
  }
}

/// Panels of `Width` lines: the number of line l at k is to[l / Width·Width·depth + k·Width + l % Width].
template <int Width, class T>
void pack_panels_of(const PanelSource<T>& s, float* to) {
  const std::int64_t whole = s.lines / Width * Width;
  if (s.order == KOrder::across) {
    pack_across<Width>(s, whole, to);
  } else {
    for (std::int64_t r = 0; r < whole; r += Width)
      pack_along<Width>(s, s.data + r * s.ld, r + 2 * Width <= whole, to + r * s.depth);
  }
  if (whole == s.lines) return;
  const std::int64_t along = s.order == KOrder::along ? 1 : s.ld, across = s.order == KOrder::along ? s.ld : 1;
  to += whole * s.depth;
  for (std::int64_t k = 0; k < s.depth; ++k)
    for (int r = 0; r < Width; ++r)
      to[k * Width + r] = whole + r < s.lines ? widen(s.data[(whole + r) * across + k * along]) : 0;
}

/// tile (a_rows, b_columns) = a·b, of one panel each. Not inlined: among other loops its sums would not all stay in
/// registers.
[[gnu::noinline]] void multiply_panels(const float* a, const float* b, std::int64_t depth, float* tile) {
  Vec<float> low[a_rows], high[a_rows];
#pragma GCC unroll 16
  for (int r = 0; r < a_rows; ++r) low[r] = high[r] = Vec<float>{};
  const auto multiply_k = [&](const float* from_a, const float* from_b) __attribute__((always_inline)) {
    const Vec<float> b_low = load<float>(from_b), b_high = load<float>(from_b + lanes_f32);
#pragma GCC unroll 16
    for (int r = 0; r < a_rows; ++r) {
      const Vec<float> x = splat<float>(from_a[r]);
      low[r] = multiply_add<float>(x, b_low, low[r]);
      high[r] = multiply_add<float>(x, b_high, high[r]);
    }
  };
  std::int64_t k = 0;
  for (; k + 4 <= depth; k += 4, a += 4 * a_rows, b += 4 * b_columns) {
    __builtin_prefetch(a + 64 * a_rows);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) multiply_k(a + i * a_rows, b + i * b_columns);
  }
  for (; k < depth; ++k, a += a_rows, b += b_columns) multiply_k(a, b);
#pragma GCC unroll 16
  for (int r = 0; r < a_rows; ++r) {
    store<float>(tile + r * b_columns, low[r]);
    store<float>(tile + r * b_columns + lanes_f32, high[r]);
  }
}

/// f(register or number of the tile, its row, its column) for whatever of the tile is in C.
template <class F>
[[gnu::always_inline]] inline void each(float (&tile)[a_rows][b_columns], std::int64_t rows, std::int64_t columns,
                                        const F& f) {
  if (rows == a_rows && columns == b_columns) {
#pragma GCC unroll 16
    for (int r = 0; r < a_rows; ++r)
#pragma GCC unroll 2
      for (int x = 0; x < b_columns; x += lanes_f32) {
        Vec<float> v = load<float>(tile[r] + x);
        f(v, r, x);
        store<float>(tile[r] + x, v);
      }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t x = 0; x < columns; ++x) f(tile[r][x], r, x);
}

/// As many numbers as v is, from memory and to it.
template <class T>
[[gnu::always_inline]] inline Vec<float> numbers(const Vec<float>&, const T* from) {
  return load(from);
}
template <class T>
[[gnu::always_inline]] inline float numbers(float, const T* from) {
  return widen(*from);
}
template <class G>
[[gnu::always_inline]] inline void round_to(G* to, const Vec<float>& v) {
  if constexpr (is_half<G>) store_half(v, to);
  else store<float>(to, v);
}
template <class G>
[[gnu::always_inline]] inline void round_to(G* to, float v) {
  put(*to, v);
}

/// What becomes of the products of a tile at (i, j).
template <class T, class G>
void finish(const PanelBlock<T, G>& p, std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns,
            float (&tile)[a_rows][b_columns]) {
  float* const sums = p.sums + i * p.sums_ld + j;
  G* const c = p.c + i * p.ldc + j;
  if (p.alpha != 1) each(tile, rows, columns, [&](auto& v, std::int64_t, std::int64_t) { v *= p.alpha; });
  if (!p.is_first)
    each(tile, rows, columns,
         [&](auto& v, std::int64_t r, std::int64_t x) { v += numbers(v, sums + r * p.sums_ld + x); });
  if (!p.is_last)
    return each(tile, rows, columns,
                [&](auto& v, std::int64_t r, std::int64_t x) { round_to(sums + r * p.sums_ld + x, v); });
  if (p.beta != 0)
    each(tile, rows, columns,
         [&](auto& v, std::int64_t r, std::int64_t x) { v += p.beta * numbers(v, c + r * p.ldc + x); });
  if (p.bias)
    each(tile, rows, columns, [&](auto& v, std::int64_t, std::int64_t x) { v += numbers(v, p.bias + j + x); });
  each(tile, rows, columns, [&](auto& v, std::int64_t r, std::int64_t x) { round_to(c + r * p.ldc + x, v); });
}

template <class T, class G>
void multiply_block(const PanelBlock<T, G>& p) {
  alignas(64) float tile[a_rows][b_columns];
  for (std::int64_t j = 0; j < p.columns; j += b_columns)
    for (std::int64_t i = 0; i < p.rows; i += a_rows) {
      const std::int64_t rows = a_rows < p.rows - i ? a_rows : p.rows - i,
                         columns = b_columns < p.columns - j ? b_columns : p.columns - j;
      for (std::int64_t r = 0; r < rows; ++r) {  // both ends: rows of C may begin anywhere
        if (!p.is_first || !p.is_last) __builtin_prefetch(p.sums + (i + r) * p.sums_ld + j, 1);
        if (!p.is_last) continue;
        const G* const c = p.c + (i + r) * p.ldc + j;
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + columns - 1, 1);
      }
      multiply_panels(p.a + i * p.depth, p.b + j * p.depth, p.depth, tile[0]);
      finish(p, i, j, rows, columns, tile);
    }
}

}  // namespace

const HalfPanels<bf16> half_panels_bf16 = {pack_panels_of<a_rows, bf16>, pack_panels_of<b_columns, bf16>,
                                           multiply_block<bf16, bf16>, multiply_block<bf16, float>};
const HalfPanels<f16> half_panels_f16 = {pack_panels_of<a_rows, f16>, pack_panels_of<b_columns, f16>,
                                         multiply_block<f16, f16>, multiply_block<f16, float>};

}  // namespace tessera::kernels::host::TESSERA_ISA
