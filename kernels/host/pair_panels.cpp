// Packing of pairs and the loops over register tiles: a panel of B stays in the inner cache while all panels of A pass.
#include "kernels/host/pair_panels.hpp"

#include <algorithm>

namespace tessera::kernels::host {
namespace {

std::uint32_t pair_of(bf16 low, bf16 high) { return low.bits | static_cast<std::uint32_t>(high.bits) << 16; }

constexpr bf16 zero_half() { return bf16(0.0F); }

/// One panel whose lines all exist.
void pack_panel(const PanelSource<bf16>& s, std::int64_t first, std::int64_t width, std::uint32_t* to) {
  const std::int64_t whole = s.depth / 2;
  if (s.order == KOrder::along) {
    for (std::int64_t r = 0; r < width; ++r) {
      const bf16* const from = s.data + (first + r) * s.ld;
      for (std::int64_t p = 0; p < whole; ++p) to[p * width + r] = pair_of(from[2 * p], from[2 * p + 1]);
      if (s.depth % 2) to[whole * width + r] = pair_of(from[s.depth - 1], zero_half());
    }
    return;
  }
  for (std::int64_t p = 0; p < whole; ++p) {
    const bf16 *const even = s.data + 2 * p * s.ld + first, *const odd = even + s.ld;
    for (std::int64_t r = 0; r < width; ++r) to[p * width + r] = pair_of(even[r], odd[r]);
  }
  if (s.depth % 2 == 0) return;
  const bf16* const last = s.data + (s.depth - 1) * s.ld + first;
  for (std::int64_t r = 0; r < width; ++r) to[whole * width + r] = pair_of(last[r], zero_half());
}

/// The last panel, of which `lines` lines exist.
void pack_edge(const PanelSource<bf16>& s, std::int64_t first, std::int64_t lines, std::int64_t width, std::uint32_t* to) {
  const std::int64_t along = s.order == KOrder::along ? 1 : s.ld, across = s.order == KOrder::along ? s.ld : 1;
  const auto at = [&](std::int64_t r, std::int64_t k) { return r < lines && k < s.depth ? s.data[(first + r) * across + k * along] : zero_half(); };
  for (std::int64_t p = 0; p < (s.depth + 1) / 2; ++p)
    for (std::int64_t r = 0; r < width; ++r) to[p * width + r] = pair_of(at(r, 2 * p), at(r, 2 * p + 1));
}

}  // namespace

void pack_pairs(const PanelSource<bf16>& source, std::int64_t width, std::uint32_t* to) {
  const std::int64_t panel = (source.depth + 1) / 2 * width;
  for (std::int64_t first = 0; first < source.lines; first += width, to += panel) {
    if (first + width <= source.lines) pack_panel(source, first, width, to);
    else pack_edge(source, first, source.lines - first, width, to);
  }
}

void multiply_panels(const PairBlock& b, PairTileKernel kernel) {
  for (std::int64_t j = 0; j < b.columns; j += pair_columns) {
    for (std::int64_t i = 0; i < b.rows; i += pair_rows) {
      const std::int64_t rows = std::min(pair_rows, b.rows - i), columns = std::min(pair_columns, b.columns - j);
      float* const c = b.c + i * b.ldc + j;
      PairTile tile{.pairs = b.pairs, .a = b.a + i * b.pairs, .b = b.b + j * b.pairs, .alpha = b.alpha, .add = b.add, .c = c, .ldc = b.ldc};
      if (rows == pair_rows && columns == pair_columns) {
        kernel(tile);
        continue;
      }
      alignas(64) float edge[pair_rows * pair_columns];
      tile.add = false, tile.c = edge, tile.ldc = pair_columns;
      kernel(tile);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t x = 0; x < columns; ++x) c[r * b.ldc + x] = edge[r * pair_columns + x] + (b.add ? c[r * b.ldc + x] : 0);
    }
  }
}

void portable_pair_tile(const PairTile& tile) {
  float sums[pair_rows][pair_columns] = {};
  for (std::int64_t p = 0; p < tile.pairs; ++p)
    for (std::int64_t r = 0; r < pair_rows; ++r) {
      const std::uint32_t x = tile.a[p * pair_rows + r];
      const float x_low = half::number(x << 16), x_high = half::number(x & 0xffff0000);
      for (std::int64_t c = 0; c < pair_columns; ++c) {
        const std::uint32_t y = tile.b[p * pair_columns + c];
        sums[r][c] += x_low * half::number(y << 16) + x_high * half::number(y & 0xffff0000);
      }
    }
  for (std::int64_t r = 0; r < pair_rows; ++r)
    for (std::int64_t c = 0; c < pair_columns; ++c) {
      float& out = tile.c[r * tile.ldc + c];
      out = tile.alpha * sums[r][c] + (tile.add ? out : 0);
    }
}

}  // namespace tessera::kernels::host
