// SPDX-License-Identifier: Apache-2.0
#pragma once
// Packing and blocked GEMMs for attention, on register tiles. For host/isa only.
//
// The query side of a GEMM is packed row by row (whole strips of tile_rows rows), the key side in panels of tile_cols
// columns. Both are padded with zeros to whole strips and panels. What is packed, and multiplied, are operands of T:
// 16-bit floats are widened as they are packed, except for bf16 where there is a dot-product instruction for it: an
// operand is then two numbers. Depths are in operands, rounded up.

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {

// Inlined always: each instruction set is compiled for itself, and must not emit a symbol that another one may use.
[[gnu::always_inline]] inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
[[gnu::always_inline]] inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

#if defined(__AVX512BF16__)
template <class T>
inline constexpr bool has_dot_product = std::is_same_v<T, bf16>;
#else
template <class T>
inline constexpr bool has_dot_product = false;
#endif
template <class T>
using Operand = std::conditional_t<has_dot_product<T>, Bf16x2, Acc<T>>;
/// Numbers of an operand.
template <class Op>
inline constexpr std::int64_t numbers_of = std::is_same_v<Op, Bf16x2> ? 2 : 1;
template <class Op>
[[gnu::always_inline]] inline std::int64_t in_operands(std::int64_t numbers) {
  return (numbers + numbers_of<Op> - 1) / numbers_of<Op>;
}

/// A strided matrix to pack: element (r, c) is data[r·ld + c].
template <class T>
struct Source {
  const T* data;
  std::int64_t ld, rows, columns;
};

/// Packs factor·x row by row, neighbouring columns in an operand; `width` operands a row, up to a whole strip. bf16x2
/// takes no factor.
template <class T>
[[gnu::noinline]] inline void pack_rows(const Source<T>& x, [[maybe_unused]] Acc<T> factor, std::int64_t width,
                                        Operand<T>* to) {
  const std::int64_t rows = round_up(x.rows, tile_rows);
  for (std::int64_t r = 0; r < rows; ++r, to += width) {
    const T* const from = x.data + r * x.ld;
    const std::int64_t columns = r < x.rows ? x.columns : 0;
    if constexpr (has_dot_product<T>) {
      std::int64_t c = 0;
      for (; c + 2 * vec_width<Bf16x2> <= columns; c += 2 * vec_width<Bf16x2>)
        __builtin_memcpy(to + c / 2, from + c, vec_bytes);
      for (; c < 2 * width; c += 2) {
        const bf16 zero{};
        to[c / 2] = bf16x2(c < columns ? from[c] : zero, c + 1 < columns ? from[c + 1] : zero);
      }
    } else {
      for_each_register<T>(columns,
                           [=](std::int64_t c, const auto& part) { part.store(to + c, factor * part.load(from + c)); });
      for (std::int64_t c = columns; c < width; ++c) to[c] = 0;
    }
  }
}

/// Where B is packed: operand (r, c) is data[c / tile_cols · panel_stride + r·row_stride + c % tile_cols].
template <class Op>
struct Panels {
  Op* data;
  std::int64_t row_stride, panel_stride;
};

/// Packs x as B, neighbouring rows in an operand. Of a last row without neighbour, the second number is zero.
template <class T>
[[gnu::noinline]] inline void pack_panels(const Source<T>& x, const Panels<Operand<T>>& to) {
  using Op = Operand<T>;
  constexpr std::int64_t n = tile_cols<Op>, w = vec_width<T>;
  for (std::int64_t r = 0; r < x.rows; r += numbers_of<Op>) {
    const T* const from = x.data + r * x.ld;
    Op* const row = to.data + r / numbers_of<Op> * to.row_stride;
    const auto at = [&](std::int64_t c) { return row + c / n * to.panel_stride + c % n; };
    for_each_register<T>(x.columns, [&](std::int64_t c, const auto& part) {
      if constexpr (has_dot_product<T>) {
        const auto first = reinterpret_cast<VecBits>(part.load(from + c));
        const auto second = r + 1 < x.rows ? reinterpret_cast<VecBits>(part.load(from + x.ld + c)) : VecBits{};
        store<Op>(at(c), first >> 16 | second);
      } else {
        store<Op>(at(c), part.load(from + c));
      }
    });
    for (std::int64_t c = round_up(x.columns, w); c < round_up(x.columns, n); c += w) store<Op>(at(c), Vec<Op>{});
  }
}

/// Packs the transpose of x in panels, neighbouring columns of x in an operand: x.columns numbers deep, x.rows rounded
/// up to whole panels wide.
template <class T>
[[gnu::noinline]] inline void pack_panels_transposed(const Source<T>& x, Operand<T>* to) {
  using Op = Operand<T>;
  constexpr std::int64_t w = vec_width<T>, n = tile_cols<Op>;
  const std::int64_t depth = in_operands<Op>(x.columns);
  for (std::int64_t first = 0; first < round_up(x.rows, n); first += w) {
    Op* const out = to + first / n * n * depth + first % n;
    const std::int64_t vectorized = first + w <= x.rows ? x.columns / numbers_of<Op> / w * w : 0;
    for (std::int64_t c = 0; c < vectorized; c += w) {
      Vec<Op> square[w];
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) {
        const T* const from = x.data + (first + r) * x.ld + c * numbers_of<Op>;
        if constexpr (has_dot_product<T>) __builtin_memcpy(&square[r], from, sizeof square[r]);
        else square[r] = load<T>(from);
      }
      transpose<Op>(square);
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) store<Op>(out + (c + r) * n, square[r]);
    }
    for (std::int64_t c = vectorized; c < depth; ++c) {
      for (std::int64_t r = 0; r < w; ++r) {
        Op& put = out[c * n + r] = {};
        if (first + r >= x.rows) continue;
        const T* const from = x.data + (first + r) * x.ld + c * numbers_of<Op>;
        if constexpr (has_dot_product<T>) put = bf16x2(from[0], 2 * c + 1 < x.columns ? from[1] : T{});
        else put = widen(from[0]);
      }
    }
  }
}

/// The part of a (query block × key tile) rectangle that is seen, in rows and columns relative to it: below the
/// diagonal, and within a window. What is before a window is computed and masked; what is after the diagonal is skipped
/// by strips.
struct CausalTile {
  std::int64_t rows;     // rows of the block that exist
  std::int64_t columns;  // columns of the tile that exist
  std::int64_t offset;   // row r sees columns up to r + offset
  std::int64_t window;   // and as many at most

  [[nodiscard]] std::int64_t strips() const { return (rows + tile_rows - 1) / tile_rows; }
  /// Columns that any row of strip s sees, rounded up to a strip of keys.
  [[nodiscard]] std::int64_t strip_columns(std::int64_t s) const {
    const std::int64_t end = (s + 1) * tile_rows + offset;
    return end > 0 ? smaller(columns, round_up(end, tile_rows)) : 0;
  }
  /// Row r sees columns [row_begin, row_columns); none if they are not less.
  [[nodiscard]] std::int64_t row_columns(std::int64_t r) const {
    const std::int64_t end = r + offset + 1;
    return end > 0 ? smaller(columns, end) : 0;
  }
  [[nodiscard]] std::int64_t row_begin(std::int64_t r) const {
    const std::int64_t begin = r + offset + 1 - window;
    return begin > 0 ? smaller(columns, begin) : 0;
  }
  /// The first strip with a row that sees column c.
  [[nodiscard]] std::int64_t first_strip(std::int64_t c) const { return c <= offset ? 0 : (c - offset) / tile_rows; }
};

/// S = Q·Kᵀ (or dO·Vᵀ) on the visible part: A (queries, ld), B panels of keys. A panel stays in L1 while all strips
/// pass.
template <class Op>
[[gnu::noinline]] inline void matmul_qkt(const CausalTile& tile, const TileB<Op>& a, const Op* b, std::int64_t depth,
                                         Sum<Op>* s, std::int64_t lds) {
  const std::int64_t strips = tile.strips(), end = tile.strip_columns(strips - 1);
  for (std::int64_t c = 0; c < end; c += tile_cols<Op>) {
    for (std::int64_t i = tile.first_strip(c); i < strips; ++i) {
      const std::int64_t row = i * tile_rows;
      gemm_microkernel<false, Op>({a.data + row * a.stride, a.stride, 1}, {b + c * depth, tile_cols<Op>}, depth,
                                  s + row * lds + c, lds);
    }
  }
}

/// C (queries, width) = P·B or += P·B (P·V, dS·K), neighbouring keys in an operand of P: the depth is the keys that a
/// strip sees.
template <bool Add, class Op>
[[gnu::noinline]] inline void matmul_pv(const CausalTile& tile, const TileB<Op>& p, const Panels<const Op>& b,
                                        Sum<Op>* c, std::int64_t width) {
  for (std::int64_t n = 0; n < width; n += tile_cols<Op>) {
    for (std::int64_t i = 0; i < tile.strips(); ++i) {
      const std::int64_t row = i * tile_rows;
      gemm_microkernel<Add, Op>({p.data + row * p.stride, p.stride, 1},
                                {b.data + n / tile_cols<Op> * b.panel_stride, b.row_stride},
                                in_operands<Op>(tile.strip_columns(i)), c + row * width + n, width);
    }
  }
}

/// C (keys, width) += Pᵀ·B (Pᵀ·dO, dSᵀ·Q), B (queries, width), neighbouring queries in an operand of both: the depth is
/// the queries that see a strip of keys.
template <class Op>
[[gnu::noinline]] inline void matmul_pt(const CausalTile& tile, const TileB<Op>& p, const Op* b, Sum<Op>* c,
                                        std::int64_t width) {
  static_assert(tile_rows % numbers_of<Op> == 0);
  const std::int64_t end = tile.strip_columns(tile.strips() - 1);
  for (std::int64_t n = 0; n < width; n += tile_cols<Op>) {
    for (std::int64_t i = 0; i < end; i += tile_rows) {
      const std::int64_t first = tile.first_strip(i) * tile_rows, skipped = first / numbers_of<Op>;
      gemm_microkernel<true, Op>({p.data + skipped * p.stride + i, 1, p.stride}, {b + skipped * width + n, width},
                                 in_operands<Op>(tile.rows - first), c + i * width + n, width);
    }
  }
}

}  // namespace tessera::kernels::host::TESSERA_ISA
