#pragma once
// Packing for the register tile of pairs (pair_tile.hpp), and the product of packed blocks by it. One thread.

#include "kernels/host/pair_tile.hpp"
#include "kernels/host/panel_source.hpp"
#include "runtime/base/half.hpp"

namespace tessera::kernels::host {

/// The order of packed panels: of A with its shape's rows and group, of B with its columns and a group of 1.
struct PairOrder {
  std::int64_t width, group;
  std::int64_t pairs;  // of a panel; those beyond the source's depth are zero
};
/// Packs all lines in panels, one after another: ⌈lines / width⌉·width·pairs words.
void pack_pairs(const PanelSource<bf16>& source, const PairOrder& order, std::uint32_t* to);

/// Pairs of k in a panel of this depth.
[[nodiscard]] constexpr std::int64_t pairs_of(std::int64_t depth, const PairShape& shape) {
  return ((depth + 1) / 2 + shape.group - 1) / shape.group * shape.group;
}

struct PairBlock {
  const std::uint32_t *a, *b;  // panels of the kernel's shape
  std::int64_t rows, columns, pairs;
  float alpha;
  bool add;  // c += alpha·a·b, or c = alpha·a·b
  float* c;  // (rows, columns), rows ldc apart
  std::int64_t ldc;
};
void multiply_panels(const PairBlock& block, const PairKernel& kernel);

/// The tiles in plain C++: what the others are held against, and the driver is tested with.
[[nodiscard]] const PairKernel& portable_pairs();  // of vector_shape
[[nodiscard]] const PairKernel& portable_tiles();  // of tile_shape

}  // namespace tessera::kernels::host
