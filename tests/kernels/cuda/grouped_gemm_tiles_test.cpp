// SPDX-License-Identifier: Apache-2.0
// Tiles of groups, on the CPU: every row of every group is in exactly one tile, and fewer tile indices are empty than
// there are groups.
#include "kernels/cuda/grouped_gemm_tiles.hpp"

#include "../reference.hpp"

namespace tessera::kernels::cuda {
namespace {

/// Groups of `rows` rows in all, many of them empty, of one row, or of whole tiles.
std::vector<std::int32_t> groups_of(std::int64_t groups, std::int64_t rows, std::int64_t height, std::uint64_t seed) {
  std::vector<std::int32_t> offsets = {0};
  for (std::int64_t e = 0; e + 1 < groups; ++e) {
    const double kind = uniform(seed, static_cast<std::uint64_t>(2 * e));
    const auto wanted = kind < 0.3   ? 0
                        : kind < 0.5 ? 1
                        : kind < 0.7 ? height
                                     : static_cast<std::int64_t>(uniform(seed, static_cast<std::uint64_t>(2 * e + 1)) *
                                                                 3 * static_cast<double>(height));
    offsets.push_back(static_cast<std::int32_t>(std::min(rows, offsets.back() + wanted)));
  }
  offsets.push_back(static_cast<std::int32_t>(rows));
  return offsets;
}

TEST(GroupedTiles, EveryRowIsInOneTile) {
  for (const std::int64_t height : {1, 64, 128})
    for (const std::int64_t groups : {1, 2, 7, 128, 1000})
      for (const std::int64_t rows : {0, 1, 127, 128, 5000})
        for (const std::uint64_t seed : {1, 2, 3}) {
          const auto offsets = groups_of(groups, rows, height, seed);
          std::vector<int> seen(static_cast<std::size_t>(rows));
          const std::int64_t max_tiles = max_row_tiles(rows, groups, height);
          EXPECT_LE(max_tiles, (rows + height - 1) / height + groups);
          for (std::int64_t index = 0; index < max_tiles; ++index) {
            const RowTile tile = row_tile(offsets.data(), groups, index, height);
            const auto e = static_cast<std::size_t>(tile.group);
            ASSERT_TRUE(tile.group >= 0 && tile.group < groups);
            if (tile.first >= tile.last) continue;
            ASSERT_TRUE(tile.first >= offsets[e] && tile.last <= offsets[e + 1] && tile.last - tile.first <= height)
                << index;
            ASSERT_EQ((tile.first - offsets[e]) % height, 0);
            for (std::int64_t row = tile.first; row < tile.last; ++row) ++seen[static_cast<std::size_t>(row)];
          }
          for (const int times : seen)
            ASSERT_EQ(times, 1) << groups << " groups of " << rows << " rows, tiles of " << height;
        }
}

TEST(GroupedTiles, TransposedRowsOfAAreThoseOfItsFragments) {
  // ldmatrix.x4.trans: matrix m of lane l/8 has depth at_row, rows of A at chunk at_chunk. Operand A has rows 0-7, 8-15
  // at depth 0-7, then both at 8-15.
  for (int lane = 0; lane < 32; ++lane) {
    const int matrix = lane / 8;
    EXPECT_EQ(at_row(lane), lane % 8 + 8 * (matrix / 2));
    EXPECT_EQ(at_chunk(lane), matrix % 2);
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda
