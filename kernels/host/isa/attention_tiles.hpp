#pragma once
// Packing and blocked products for attention, on register tiles. Only for sources under host/isa.
//
// Two packed forms of a (rows, columns) matrix X:
//   as A of a product: strips of tile_rows rows, strip s holding X[s·tile_rows + r][c] at s·tile_rows·columns + c·tile_rows + r
//   as B of a product: panels of tile_cols columns, panel p holding X[r][p·tile_cols + c] at (p·rows + r)·tile_cols + c
// both padded with zeros to whole strips and panels.

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {

[[gnu::always_inline]] inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
[[gnu::always_inline]] inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
[[gnu::always_inline]] inline std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

/// A strided matrix to pack: element (r, c) is data[r·ld + c].
template <class T>
struct Source {
  const T* data;
  std::int64_t ld, rows, columns;
};

/// Packs factor·x as A, up to `strips` whole strips.
template <class T>
inline void pack_a(const Source<T>& x, T factor, std::int64_t strips, T* to) {
  for (std::int64_t s = 0; s < strips; ++s) {
    for (std::int64_t r = 0; r < tile_rows; ++r) {
      const std::int64_t row = s * tile_rows + r;
      const T* const from = x.data + row * x.ld;
      T* const out = to + s * tile_rows * x.columns + r;
      if (row < x.rows) {
        for (std::int64_t c = 0; c < x.columns; ++c) out[c * tile_rows] = factor * from[c];
      } else {
        for (std::int64_t c = 0; c < x.columns; ++c) out[c * tile_rows] = 0;
      }
    }
  }
}

/// Packs factor·x as B; panels have `panel_rows` rows of which x fills the first.
template <class T>
inline void pack_b(const Source<T>& x, T factor, std::int64_t panel_rows, T* to) {
  for (std::int64_t first = 0; first < x.columns; first += tile_cols<T>, to += panel_rows * tile_cols<T>) {
    const std::int64_t width = smaller(tile_cols<T>, x.columns - first);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const T* const from = x.data + r * x.ld + first;
      T* const out = to + r * tile_cols<T>;
      if (width == tile_cols<T>) {
        for (int c = 0; c < tile_cols<T>; ++c) out[c] = factor * from[c];
      } else {
        for (std::int64_t c = 0; c < tile_cols<T>; ++c) out[c] = c < width ? factor * from[c] : T(0);
      }
    }
  }
}

/// Packs the transpose of x as B: x.columns rows deep, x.rows rounded up to whole panels wide.
template <class T>
inline void pack_b_transposed(const Source<T>& x, T* to) {
  for (std::int64_t first = 0; first < x.rows; first += tile_cols<T>, to += x.columns * tile_cols<T>) {
    for (std::int64_t r = 0; r < tile_cols<T>; ++r) {
      const T* const from = x.data + (first + r) * x.ld;
      if (first + r < x.rows) {
        for (std::int64_t c = 0; c < x.columns; ++c) to[c * tile_cols<T> + r] = from[c];
      } else {
        for (std::int64_t c = 0; c < x.columns; ++c) to[c * tile_cols<T> + r] = 0;
      }
    }
  }
}

/// The part of a (query block × key tile) rectangle at or below the diagonal, in rows and columns relative to it.
struct CausalTile {
  std::int64_t rows;     // rows of the block that exist
  std::int64_t columns;  // columns of the tile that exist
  std::int64_t offset;   // row r sees columns 0 … r + offset

  [[nodiscard]] std::int64_t strips() const { return (rows + tile_rows - 1) / tile_rows; }
  /// Columns that some row of strip s sees.
  [[nodiscard]] std::int64_t strip_columns(std::int64_t s) const {
    return larger(0, smaller(columns, (s + 1) * tile_rows + offset));
  }
  [[nodiscard]] std::int64_t row_columns(std::int64_t r) const { return smaller(columns, r + offset + 1); }
  /// The first strip with a row that sees column c.
  [[nodiscard]] std::int64_t first_strip(std::int64_t c) const { return c <= offset ? 0 : (c - offset) / tile_rows; }
};

/// S = A·Bᵀ on the visible part: whole register tiles, a panel of keys in the inner cache while all strips pass.
template <class T>
inline void multiply_scores(const CausalTile& tile, const T* a, const T* b, std::int64_t depth, T* s, std::int64_t lds) {
  const std::int64_t strips = tile.strips(), end = tile.strip_columns(strips - 1);
  for (std::int64_t c = 0; c < end; c += tile_cols<T>) {
    for (std::int64_t i = tile.first_strip(c); i < strips; ++i) {
      multiply_tile<false, T>({a + i * tile_rows * depth, 1, tile_rows}, b + c * depth, depth, s + i * tile_rows * lds + c, lds);
    }
  }
}

/// C += P·B (or =), rows are queries: depth runs over the keys that a strip sees.
template <bool Add, class T>
inline void multiply_rows(const CausalTile& tile, const T* p, std::int64_t ldp, const T* b, std::int64_t panel_rows, T* c,
                          std::int64_t ldc) {
  for (std::int64_t n = 0; n < ldc; n += tile_cols<T>, b += panel_rows * tile_cols<T>) {
    for (std::int64_t i = 0; i < tile.strips(); ++i) {
      const std::int64_t depth = tile.strip_columns(i);
      multiply_tile<Add, T>({p + i * tile_rows * ldp, ldp, 1}, b, depth, c + i * tile_rows * ldc + n, ldc);
    }
  }
}

/// C += Pᵀ·B, rows are keys: depth runs over the queries that see a strip of keys.
template <class T>
inline void multiply_columns(const CausalTile& tile, const T* p, std::int64_t ldp, const T* b, std::int64_t panel_rows, T* c,
                             std::int64_t ldc) {
  const std::int64_t end = tile.strip_columns(tile.strips() - 1);
  for (std::int64_t n = 0; n < ldc; n += tile_cols<T>, b += panel_rows * tile_cols<T>) {
    for (std::int64_t i = 0; i < end; i += tile_rows) {
      const std::int64_t first = tile.first_strip(i) * tile_rows;
      multiply_tile<true, T>({p + first * ldp + i, 1, ldp}, b + first * tile_cols<T>, tile.rows - first, c + i * ldc + n, ldc);
    }
  }
}

}  // namespace tessera::kernels::host::TESSERA_ISA
