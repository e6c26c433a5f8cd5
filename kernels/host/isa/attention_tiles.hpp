// SPDX-License-Identifier: Apache-2.0
#pragma once
// Packing and blocked GEMMs for attention, on register tiles. For host/isa only.
//
// The query side of a GEMM is packed row by row (ld = width, whole strips of tile_rows rows), the key side in panels of
// tile_cols columns: panel p of a (rows, columns) matrix X holds X[r][p·tile_cols + c] at (p·rows + r)·tile_cols + c.
// Both are padded with zeros to whole strips and panels. 16-bit elements are widened as they are packed: GEMMs are of
// floats.

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {

[[gnu::always_inline]] inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
[[gnu::always_inline]] inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// A strided matrix to pack: element (r, c) is data[r·ld + c].
template <class T>
struct Source {
  const T* data;
  std::int64_t ld, rows, columns;
};

/// Packs factor·x row by row, `width` numbers each, up to a whole strip.
template <class T>
[[gnu::noinline]] inline void pack_rows(const Source<T>& x, Acc<T> factor, std::int64_t width, Acc<T>* to) {
  const std::int64_t rows = round_up(x.rows, tile_rows);
  for (std::int64_t r = 0; r < rows; ++r, to += width) {
    const T* const from = x.data + r * x.ld;
    const std::int64_t columns = r < x.rows ? x.columns : 0;
    for_each_register<T>(columns,
                         [=](std::int64_t c, const auto& part) { part.store(to + c, factor * part.load(from + c)); });
    for (std::int64_t c = columns; c < width; ++c) to[c] = 0;
  }
}

/// Packs x in panels of `panel_rows` rows, of which x fills the first.
template <class T>
[[gnu::noinline]] inline void pack_panels(const Source<T>& x, std::int64_t panel_rows, Acc<T>* to) {
  constexpr std::int64_t n = tile_cols<T>;
  for (std::int64_t r = 0; r < x.rows; ++r, to += n) {
    const T* const from = x.data + r * x.ld;
    std::int64_t c = 0;
    Acc<T>* out = to;
    for (; c + n <= x.columns; c += n, out += panel_rows * n) {
      store<Acc<T>>(out, load<T>(from + c));
      store<Acc<T>>(out + n / 2, load<T>(from + c + n / 2));
    }
    if (c == x.columns) continue;
    for (std::int64_t i = 0; i < n; ++i) out[i] = c + i < x.columns ? widen(from[c + i]) : Acc<T>(0);
  }
}

/// Packs the transpose of x in panels: x.columns rows deep, x.rows rounded up to whole panels wide.
template <class T>
[[gnu::noinline]] inline void pack_panels_transposed(const Source<T>& x, Acc<T>* to) {
  constexpr std::int64_t w = vec_width<T>, n = tile_cols<T>;
  for (std::int64_t first = 0; first < round_up(x.rows, n); first += w) {
    Acc<T>* const out = to + first / n * n * x.columns + first % n;
    const std::int64_t vectorized = first + w <= x.rows ? x.columns / w * w : 0;
    for (std::int64_t c = 0; c < vectorized; c += w) {
      Vec<T> square[w];
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) square[r] = load<T>(x.data + (first + r) * x.ld + c);
      transpose<Acc<T>>(square);
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) store<Acc<T>>(out + (c + r) * n, square[r]);
    }
    for (std::int64_t c = vectorized; c < x.columns; ++c) {
      for (std::int64_t r = 0; r < w; ++r)
        out[c * n + r] = first + r < x.rows ? widen(x.data[(first + r) * x.ld + c]) : Acc<T>(0);
    }
  }
}

/// The part of a (query block × key tile) rectangle at or below the diagonal, in rows and columns relative to it.
struct CausalTile {
  std::int64_t rows;     // rows of the block that exist
  std::int64_t columns;  // columns of the tile that exist
  std::int64_t offset;   // row r sees columns 0 … r + offset; a multiple of tile_rows, not negative

  [[nodiscard]] std::int64_t strips() const { return (rows + tile_rows - 1) / tile_rows; }
  /// Columns that any row of strip s sees.
  [[nodiscard]] std::int64_t strip_columns(std::int64_t s) const {
    return smaller(columns, (s + 1) * tile_rows + offset);
  }
  [[nodiscard]] std::int64_t row_columns(std::int64_t r) const { return smaller(columns, r + offset + 1); }
  /// The first strip with a row that sees column c.
  [[nodiscard]] std::int64_t first_strip(std::int64_t c) const { return c <= offset ? 0 : (c - offset) / tile_rows; }
};

/// S = Q·Kᵀ (or dO·Vᵀ) on the visible part: A (queries, ld), B panels of keys. A panel stays in L1 while all strips
/// pass.
template <class T>
[[gnu::noinline]] inline void matmul_qkt(const CausalTile& tile, const TileB<T>& a, const T* b, std::int64_t depth,
                                         T* s, std::int64_t lds) {
  const std::int64_t strips = tile.strips(), end = tile.strip_columns(strips - 1);
  for (std::int64_t c = 0; c < end; c += tile_cols<T>) {
    for (std::int64_t i = tile.first_strip(c); i < strips; ++i) {
      const std::int64_t row = i * tile_rows;
      gemm_microkernel<false, T>({a.data + row * a.stride, a.stride, 1}, {b + c * depth, tile_cols<T>}, depth,
                                 s + row * lds + c, lds);
    }
  }
}

/// C (queries, width) = P·B or += P·B (P·V, dS·K), B panels of keys: the depth is the keys that a strip sees.
template <bool Add, class T>
[[gnu::noinline]] inline void matmul_pv(const CausalTile& tile, const T* p, std::int64_t ldp, const T* b,
                                        std::int64_t panel_rows, T* c, std::int64_t width) {
  for (std::int64_t n = 0; n < width; n += tile_cols<T>, b += panel_rows * tile_cols<T>) {
    for (std::int64_t i = 0; i < tile.strips(); ++i) {
      const std::int64_t row = i * tile_rows;
      gemm_microkernel<Add, T>({p + row * ldp, ldp, 1}, {b, tile_cols<T>}, tile.strip_columns(i), c + row * width + n,
                               width);
    }
  }
}

/// C (keys, width) += Pᵀ·B (Pᵀ·dO, dSᵀ·Q), B (queries, width): the depth is the queries that see a strip of keys.
template <class T>
[[gnu::noinline]] inline void matmul_pt(const CausalTile& tile, const T* p, std::int64_t ldp, const T* b, T* c,
                                        std::int64_t width) {
  const std::int64_t end = tile.strip_columns(tile.strips() - 1);
  for (std::int64_t n = 0; n < width; n += tile_cols<T>) {
    for (std::int64_t i = 0; i < end; i += tile_rows) {
      const std::int64_t first = tile.first_strip(i) * tile_rows;
      gemm_microkernel<true, T>({p + first * ldp + i, 1, ldp}, {b + first * width + n, width}, tile.rows - first,
                                c + i * width + n, width);
    }
  }
}

}  // namespace tessera::kernels::host::TESSERA_ISA
