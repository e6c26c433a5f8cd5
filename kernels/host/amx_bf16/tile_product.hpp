#pragma once
// 32×32 of C in four AMX tiles: 32 k are two tiles of A, two of B and four products. `Tiles`: the
// instructions, or a model of them.

#include "kernels/host/pair_tile.hpp"

namespace tessera::kernels::host::amx_bf16 {

/// What LDTILECFG reads: all eight tiles have 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// Tiles 0 to 3 are C's quarters, 4 and 5 rows of A, 6 and 7 columns of B; strides are bytes. Sums begin as C and go
/// back there where alpha is 1; else they begin at 0 and pass through memory.
template <class Tiles>
void multiply(const PairTile& t) {
  constexpr std::int64_t half = 16, rows = tile_shape.rows, columns = tile_shape.columns, group = tile_shape.group;
  static_assert(rows == 2 * half && columns == 2 * half && group == half);
  alignas(64) float aside[rows * columns];
  const bool in_place = t.alpha == 1;
  float* const sums = in_place ? t.c : aside;
  const std::int64_t ld = in_place ? t.ldc : columns, c_stride = 4 * ld;
  if (in_place && t.add) {
    Tiles::template load<0>(sums, c_stride);
    Tiles::template load<1>(sums + half, c_stride);
    Tiles::template load<2>(sums + half * ld, c_stride);
    Tiles::template load<3>(sums + half * ld + half, c_stride);
  } else {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  }
  const std::uint32_t *a = t.a, *b = t.b;
  for (std::int64_t p = 0; p < t.pairs; p += group, a += rows * group, b += columns * group) {
    Tiles::template load<4>(a, 4 * group);
    Tiles::template load<6>(b, 4 * columns);
    Tiles::template multiply<0, 4, 6>();
    Tiles::template load<7>(b + half, 4 * columns);
    Tiles::template multiply<1, 4, 7>();
    Tiles::template load<5>(a + half * group, 4 * group);
    Tiles::template multiply<2, 5, 6>();
    Tiles::template multiply<3, 5, 7>();
  }
  Tiles::template store<0>(sums, c_stride);
  Tiles::template store<1>(sums + half, c_stride);
  Tiles::template store<2>(sums + half * ld, c_stride);
  Tiles::template store<3>(sums + half * ld + half, c_stride);
  if (in_place) return;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      float& out = t.c[r * t.ldc + c];
      out = t.alpha * aside[r * columns + c] + (t.add ? out : 0);
    }
}

}  // namespace tessera::kernels::host::amx_bf16
