#pragma once
// Packing for the register tile of pairs (pair_tile.hpp), and the product of packed blocks by it. One thread.

#include "kernels/host/pair_tile.hpp"
#include "kernels/host/panel_source.hpp"
#include "runtime/base/half.hpp"

namespace tessera::kernels::host {

/// Packs all lines in panels of `width`, one after another: ⌈lines / width⌉·⌈depth / 2⌉·width words.
void pack_pairs(const PanelSource<bf16>& source, std::int64_t width, std::uint32_t* to);

struct PairBlock {
  const std::uint32_t *a, *b;  // panels of pair_rows and of pair_columns
  std::int64_t rows, columns, pairs;
  float alpha;
  bool add;  // c += alpha·a·b, or c = alpha·a·b
  float* c;  // (rows, columns), rows ldc apart
  std::int64_t ldc;
};
void multiply_panels(const PairBlock& block, PairTileKernel kernel);

/// The tile in plain C++: what the driver is tested with where there is no AVX512-BF16.
void portable_pair_tile(const PairTile& tile);

}  // namespace tessera::kernels::host
