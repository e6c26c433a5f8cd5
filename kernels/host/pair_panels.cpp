// Packing of pairs and the loops over register tiles: a panel of B stays in the inner cache while all panels of A pass.
#include "kernels/host/pair_panels.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace tessera::kernels::host {
namespace {

std::uint32_t pair_of(bf16 low, bf16 high) { return low.bits | static_cast<std::uint32_t>(high.bits) << 16; }

constexpr bf16 zero_half() { return bf16(0.0F); }

/// Pairs from `from` on of a panel, of which some lines or some k may not exist.
void pack_edge(const PanelSource<bf16>& s, std::int64_t first, const PairOrder& order, std::int64_t from,
               std::uint32_t* to) {
  const std::int64_t along = s.order == KOrder::along ? 1 : s.ld, across = s.order == KOrder::along ? s.ld : 1;
  const auto at = [&](std::int64_t r, std::int64_t k) {
    return first + r < s.lines && k < s.depth ? s.data[(first + r) * across + k * along] : zero_half();
  };
  for (std::int64_t p = from; p < order.pairs; ++p)
    for (std::int64_t r = 0; r < order.width; ++r)
      to[(p / order.group * order.width + r) * order.group + p % order.group] = pair_of(at(r, 2 * p), at(r, 2 * p + 1));
}

/// The whole pairs of a panel whose lines all exist, 16 at a time: what is read or written by strides stays in the
/// inner cache.
template <std::int64_t group>
void pack_whole(const PanelSource<bf16>& s, std::int64_t first, std::int64_t width, std::uint32_t* to) {
  constexpr std::int64_t step = 16;
  static_assert(group == 1 || group == step);
  const auto word = [&](std::int64_t p, std::int64_t r) { return group == 1 ? p * width + r : r * step + p; };
  const std::int64_t whole = s.depth / 2;
  for (std::int64_t p0 = 0; p0 < whole; p0 += step, to += width * step) {
    const std::int64_t pairs = std::min(step, whole - p0);
    if (s.order == KOrder::along) {
      for (std::int64_t r = 0; r < width; ++r) {
        const bf16* const from = s.data + (first + r) * s.ld + 2 * p0;
        for (std::int64_t p = 0; p < pairs; ++p) to[word(p, r)] = pair_of(from[2 * p], from[2 * p + 1]);
      }
      continue;
    }
    for (std::int64_t p = 0; p < pairs; ++p) {
      const bf16 *const even = s.data + 2 * (p0 + p) * s.ld + first, *const odd = even + s.ld;
      for (std::int64_t r = 0; r < width; ++r) to[word(p, r)] = pair_of(even[r], odd[r]);
    }
  }
}

template <PairShape shape>
void portable_tile(const PairTile& tile) {
  float sums[shape.rows][shape.columns] = {};
  for (std::int64_t p = 0; p < tile.pairs; ++p)
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      const std::uint32_t x = tile.a[(p / shape.group * shape.rows + r) * shape.group + p % shape.group];
      const float x_low = half::number(x << 16), x_high = half::number(x & 0xffff0000);
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        const std::uint32_t y = tile.b[p * shape.columns + c];
        sums[r][c] += x_low * half::number(y << 16) + x_high * half::number(y & 0xffff0000);
      }
    }
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      float& out = tile.c[r * tile.ldc + c];
      out = tile.alpha * sums[r][c] + (tile.add ? out : 0);
    }
}

}  // namespace

void pack_pairs(const PanelSource<bf16>& source, const PairOrder& order, std::uint32_t* to) {
  TESSERA_ASSERT(order.group == 1 || order.group == tile_shape.group);
  for (std::int64_t first = 0; first < source.lines; first += order.width, to += order.width * order.pairs) {
    if (first + order.width > source.lines) {
      pack_edge(source, first, order, 0, to);
      continue;
    }
    (order.group == 1 ? pack_whole<1> : pack_whole<tile_shape.group>)(source, first, order.width, to);
    pack_edge(source, first, order, source.depth / 2, to);
  }
}

void multiply_panels(const PairBlock& b, const PairKernel& kernel) {
  const std::int64_t most_rows = kernel.shape.rows, most_columns = kernel.shape.columns;
  alignas(64) float edge[tile_shape.rows * tile_shape.columns];
  TESSERA_ASSERT(most_rows * most_columns <= tile_shape.rows * tile_shape.columns);
  if (kernel.enter) kernel.enter();
  for (std::int64_t j = 0; j < b.columns; j += most_columns) {
    for (std::int64_t i = 0; i < b.rows; i += most_rows) {
      const std::int64_t rows = std::min(most_rows, b.rows - i), columns = std::min(most_columns, b.columns - j);
      float* const c = b.c + i * b.ldc + j;
      PairTile tile{.pairs = b.pairs,
                    .a = b.a + i * b.pairs,
                    .b = b.b + j * b.pairs,
                    .alpha = b.alpha,
                    .add = b.add,
                    .c = c,
                    .ldc = b.ldc};
      if (rows == most_rows && columns == most_columns) {
        kernel.tile(tile);
        continue;
      }
      tile.add = false, tile.c = edge, tile.ldc = most_columns;
      kernel.tile(tile);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t x = 0; x < columns; ++x) {
          float& out = c[r * b.ldc + x];
          out = edge[r * most_columns + x] + (b.add ? out : 0);
        }
    }
  }
  if (kernel.leave) kernel.leave();
}

const PairKernel& portable_pairs() {
  static constexpr PairKernel kernel{
      .name = "pairs in plain C++", .shape = vector_shape, .tile = portable_tile<vector_shape>};
  return kernel;
}

const PairKernel& portable_tiles() {
  static constexpr PairKernel kernel{
      .name = "tiles in plain C++", .shape = tile_shape, .tile = portable_tile<tile_shape>};
  return kernel;
}

}  // namespace tessera::kernels::host
