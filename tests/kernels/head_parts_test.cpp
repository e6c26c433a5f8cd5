// SPDX-License-Identifier: Apache-2.0
// Heads in parts: every column by its definition; kv heads that several parts have are summed; the transpose.
#include "kernels/head_parts.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t rows = 11, d = 3;

/// Column of the matrix for column c of a part.
std::int64_t column(const HeadParts& of, std::int64_t part, std::int64_t c) {
  const std::int64_t head = c / d, q = of.part_heads(), kv = of.part_kv_heads();
  if (head < q) return (part * q + head) * d + c % d;
  const bool values = head >= q + kv;
  const std::int64_t own = head - q - (values ? kv : 0);
  const std::int64_t first =
      of.kv_heads >= of.parts ? part * (of.kv_heads / of.parts) : part / (of.parts / of.kv_heads);
  return (of.heads + (values ? of.kv_heads : 0) + first + own) * d + c % d;
}

TEST(HeadParts, SplitAndMerge) {
  for (const int threads : {1, 3})
    for (const HeadParts& of : {HeadParts{2, 4, 2, d}, HeadParts{4, 4, 2, d}, HeadParts{4, 8, 1, d},
                                HeadParts{3, 6, 6, d}, HeadParts{2, 4, 0, d}, HeadParts{1, 2, 1, d}}) {
      const Setting setting(threads, isa());
      ASSERT_TRUE(divides_heads(of));
      auto matrix = random_vector<float>(rows * of.width(), 3), back = matrix;
      auto parts = std::vector<float>(static_cast<std::size_t>(of.parts * rows * of.part_width()), 7.0F);
      const Shape shape{rows, of.width()}, of_parts{of.parts, rows, of.part_width()};
      split_heads({of, view(matrix, shape), view(parts, of_parts)}, host_stream);
      std::vector<float> sums(matrix.size());
      for (std::int64_t p = 0; p < of.parts; ++p)
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t c = 0; c < of.part_width(); ++c) {
            float& x = parts[static_cast<std::size_t>((p * rows + row) * of.part_width() + c)];
            const auto from = static_cast<std::size_t>(row * of.width() + column(of, p, c));
            ASSERT_EQ(x, matrix[from]) << p << " " << row << " " << c;
            x *= static_cast<float>(p + 1);
            sums[from] += x;
          }
      merge_heads({of, view(back, shape), view(parts, of_parts)}, host_stream);
      EXPECT_EQ(back, sums) << of.parts << " parts of " << of.heads << ", " << of.kv_heads;
    }
}

TEST(HeadParts, WhatCanBeDivided) {
  EXPECT_TRUE(divides_heads({8, 32, 8, 128}) && divides_heads({8, 32, 2, 128}) && divides_heads({2, 32, 8, 128}));
  EXPECT_FALSE(divides_heads({3, 32, 8, 128}) || divides_heads({4, 12, 6, 64}) || divides_heads({4, 12, 3, 64}));
}

}  // namespace
}  // namespace tessera::kernels
