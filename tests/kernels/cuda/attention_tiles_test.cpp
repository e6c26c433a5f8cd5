// SPDX-License-Identifier: Apache-2.0
// The index maps of attention's tiles, on the CPU: ldmatrix and mma as the PTX manual defines them must multiply
// matrices through our maps.
#include "kernels/cuda/attention_tiles.hpp"

#include <array>
#include <set>

#include "../reference.hpp"

namespace tessera::kernels::cuda {
namespace {

using Tile = std::vector<float>;                        // 64 rows of `width`, in the order of shared memory
using Registers = std::array<std::array<float, 2>, 4>;  // a lane's four registers of two numbers
using Warp = std::array<Registers, 32>;
using Accumulator = std::array<std::array<float, 4>, 32>;

Tile tile_of(const std::vector<float>& matrix, int width) {
  Tile tile(matrix.size(), std::numeric_limits<float>::quiet_NaN());
  for (int row = 0; row < block_m; ++row)
    for (int c = 0; c < width; ++c)
      tile[static_cast<std::size_t>(swizzled_offset(row, c / chunk_elements, width) + c % chunk_elements)] =
          matrix[static_cast<std::size_t>(row * width + c)];
  return tile;
}

enum class Form { plain, transposed };

/// ldmatrix.x4: lane l of 8m … 8m + 7 gives the address of row l%8 of matrix m; lane l receives of matrix m the numbers
/// (l/4, 2·(l%4) + {0, 1}), or with .trans (2·(l%4) + {0, 1}, l/4).
Warp load(const Tile& tile, const std::array<int, 32>& address, Form form) {
  Warp warp{};
  for (std::size_t m = 0; m < 4; ++m)
    for (std::size_t l = 0; l < 32; ++l)
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t row = form == Form::plain ? l / 4 : 2 * (l % 4) + i,
                          column = form == Form::plain ? 2 * (l % 4) + i : l / 4;
        warp[l][m][i] = tile[static_cast<std::size_t>(address[8 * m + row]) + column];
      }
  return warp;
}

/// mma.m16n8k16: A (row, k): register r holds rows l/4 + 8·(r%2), k 2·(l%4) + {0,1} + 8·(r/2). B (k, n): register r
/// holds k 2·(l%4) + {0,1} + 8·r, n l/4.
void multiply(Accumulator& c, const Warp& a, const Warp& b, std::size_t first_b) {
  std::array<std::array<float, 16>, 16> left{};
  std::array<std::array<float, 8>, 16> right{};
  for (std::size_t l = 0; l < 32; ++l)
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t r = 0; r < 4; ++r) left[l / 4 + 8 * (r % 2)][2 * (l % 4) + i + 8 * (r / 2)] = a[l][r][i];
      for (std::size_t r = 0; r < 2; ++r) right[2 * (l % 4) + i + 8 * r][l / 4] = b[l][first_b + r][i];
    }
  for (std::size_t l = 0; l < 32; ++l)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t k = 0; k < 16; ++k) c[l][i] += left[l / 4 + 8 * (i / 2)][k] * right[k][2 * (l % 4) + i % 2];
}

template <class F>
std::array<int, 32> addresses(const F& of_lane) {
  std::array<int, 32> at{};
  for (int l = 0; l < 32; ++l) at[static_cast<std::size_t>(l)] = of_lane(l);
  return at;
}

/// Small integers, so that every product is exact.
std::vector<float> integers(int numel, std::uint64_t seed) {
  std::vector<float> v(static_cast<std::size_t>(numel));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(static_cast<int>(uniform(seed, i) * 9) - 4);
  return v;
}

TEST(AttentionTiles, EveryOffsetOfATileIsUsedOnceAndColumnsOfChunksSpreadOverBanks) {
  for (const int width : {64, 128, 256}) {
    std::set<int> offsets;
    for (int row = 0; row < block_m; ++row)
      for (int chunk = 0; chunk < width / chunk_elements; ++chunk) offsets.insert(swizzled_offset(row, chunk, width));
    EXPECT_EQ(offsets.size(), static_cast<std::size_t>(block_m * width / chunk_elements));
    EXPECT_EQ(*offsets.rbegin(), block_m * width - chunk_elements);
    for (int row = 0; row < block_m; row += 8)
      for (int chunk = 0; chunk < width / chunk_elements; ++chunk) {
        std::set<int> banks;  // of 16 bytes, eight in a line of 128
        for (int i = 0; i < 8; ++i) banks.insert(swizzled_offset(row + i, chunk, width) * 2 / 16 % 8);
        EXPECT_EQ(banks.size(), 8u);
      }
  }
}

TEST(AttentionTiles, RowsByRowsIsTheProductOfScores) {
  for (const int width : {64, 128, 256}) {
    const auto q = integers(block_m * width, 1), k = integers(block_m * width, 2);
    const Tile q_tile = tile_of(q, width), k_tile = tile_of(k, width);
    const int a_first = 32, b_first = 16;
    Accumulator left{}, right{};
    for (int chunk = 0; chunk < width / chunk_elements; chunk += 2) {  // as mma_qkt does
      const Warp a =
          load(q_tile, addresses([&](int l) { return swizzled_offset(a_first + a_row(l), chunk + a_chunk(l), width); }),
               Form::plain);
      const Warp b =
          load(k_tile, addresses([&](int l) { return swizzled_offset(b_first + b_row(l), chunk + b_chunk(l), width); }),
               Form::plain);
      multiply(left, a, b, 0);
      multiply(right, a, b, 2);
    }
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 4; ++i)
        for (const int side : {0, 1}) {
          float expected = 0;
          for (int c = 0; c < width; ++c)
            expected += q[static_cast<std::size_t>((a_first + c_row(l, i)) * width + c)] *
                        k[static_cast<std::size_t>((b_first + 8 * side + c_column(l, i)) * width + c)];
          EXPECT_EQ((side ? right : left)[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)], expected);
        }
  }
}

TEST(AttentionTiles, AccumulatorsByColumnsIsTheProductOfOutputs) {
  const int width = 128, b_first = 32, first_chunk = 6;
  const auto v = integers(block_m * width, 3), p = integers(16 * 16, 4);  // P: 16 rows, 16 deep
  const Tile v_tile = tile_of(v, width);
  Warp a{};
  for (int l = 0; l < 32; ++l) {  // pack_operand_a of two accumulators side by side
    const auto at = [&](int side, int i) {
      return p[static_cast<std::size_t>(c_row(l, i) * 16 + 8 * side + c_column(l, i))];
    };
    a[static_cast<std::size_t>(l)] = {
        {{at(0, 0), at(0, 1)}, {at(0, 2), at(0, 3)}, {at(1, 0), at(1, 1)}, {at(1, 2), at(1, 3)}}};
  }
  const Warp b = load(
      v_tile, addresses([&](int l) { return swizzled_offset(b_first + bt_row(l), first_chunk + bt_chunk(l), width); }),
      Form::transposed);
  Accumulator left{}, right{};
  multiply(left, a, b, 0);
  multiply(right, a, b, 2);
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      for (const int side : {0, 1}) {
        float expected = 0;
        for (int k = 0; k < 16; ++k)
          expected += p[static_cast<std::size_t>(c_row(l, i) * 16 + k)] *
                      v[static_cast<std::size_t>((b_first + k) * width + (first_chunk + side) * chunk_elements +
                                                 c_column(l, i))];
        EXPECT_EQ((side ? right : left)[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)], expected);
      }
}

TEST(AttentionTiles, HeadsStartWhereTheArgumentsSayAndDoNotOverlap) {
  const HeadMap map{2, 3, 6, 2, 5, 3, 0, 0};
  std::vector<float> qkv(2 * 3 * 50);
  const auto rows = [&](std::int64_t head) { return HeadRowsOf<float>{qkv.data() + head * 5, 50, 3, 5}; };
  std::set<float*> starts;
  std::set<std::int64_t> out, lse;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t h = 0; h < 6; ++h)
        starts.insert(rows(0).row(b, h, t)), out.insert(map.out(b, h, t)), lse.insert(map.lse(b, h, t));
      for (std::int64_t h = 0; h < 2; ++h) starts.insert(rows(6).row(b, h, t)), starts.insert(rows(8).row(b, h, t));
    }
  EXPECT_EQ(starts.size(), 60u);
  EXPECT_EQ(*starts.rbegin() - qkv.data(), 2 * 3 * 50 - 5);
  EXPECT_EQ(rows(8).row(1, 1, 2), *starts.rbegin());
  EXPECT_EQ(out.size(), 36u);
  EXPECT_EQ(*out.rbegin(), 2 * 3 * 30 - 5);
  EXPECT_EQ(lse.size(), 36u);
}

TEST(AttentionTiles, TheFirstKeySeenIsThatOfTheDocumentAndTheWindow) {
  HeadMap map{2, 3, 6, 2, 5, 3, 0, 0};
  const std::int32_t positions[] = {4, 5, 0, 0, 1, 0};  // the first sequence begins inside a document
  EXPECT_EQ(first_seen(positions, map, 0, 1), 0);
  EXPECT_EQ(first_seen(positions, map, 0, 2), 2);
  EXPECT_EQ(first_seen(positions, map, 1, 1), 0);
  EXPECT_EQ(first_seen(positions, map, 1, 2), 2);
  EXPECT_EQ(first_seen(nullptr, map, 1, 2), 0);
  map.window = 2;
  EXPECT_EQ(first_seen(nullptr, map, 1, 0), 0);
  EXPECT_EQ(first_seen(nullptr, map, 1, 2), 1);
  EXPECT_EQ(first_seen(positions, map, 1, 2), 2);
  map.tokens = 2;
  map.offset = 1;  // the last two tokens of the row
  EXPECT_EQ(first_seen(nullptr, map, 1, 1), 1);
  EXPECT_EQ(first_seen(positions, map, 0, 1), 2);
}

}  // namespace
}  // namespace tessera::kernels::cuda
