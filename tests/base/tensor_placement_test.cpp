// SPDX-License-Identifier: Apache-2.0
// Where the elements of a rank's part of a parameter are in the whole parameter.
#include "runtime/base/tensor_placement.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace tessera::test {
namespace {

/// The whole parameter's elements that the part has, by their number in it, from the definition.
std::vector<std::int64_t> expected(const TensorPlacement& placement, const Shape& part, int rank) {
  const Shape whole = placement.whole(part);
  std::vector<std::int64_t> sections = placement.sections;
  if (sections.empty()) sections = {whole[placement.dim]};
  std::vector<std::int64_t> indices;  // of the dimension
  std::int64_t begin = 0;
  for (const std::int64_t size : sections) {
    for (std::int64_t i = 0; i < size / placement.ranks; ++i)
      indices.push_back(begin + rank * size / placement.ranks + i);
    begin += size;
  }
  std::vector<std::int64_t> elements;
  for (std::int64_t r = 0; r < part[0]; ++r)
    for (std::int64_t c = 0; c < part[1]; ++c)
      elements.push_back(placement.dim == 0 ? indices[static_cast<std::size_t>(r)] * whole[1] + c
                                            : r * whole[1] + indices[static_cast<std::size_t>(c)]);
  return elements;
}

TEST(TensorPlacement, RunsAreTheElementsOfThePart) {
  for (const int ranks : {2, 3})
    for (const int dim : {0, 1})
      for (const std::vector<std::int64_t>& sections : {std::vector<std::int64_t>{}, {ranks * 2, ranks, ranks}}) {
        const TensorPlacement placement{ranks, dim, sections};
        const Shape part = dim == 0 ? Shape{4, 5} : Shape{5, 4};
        std::vector<bool> had(static_cast<std::size_t>(part.numel() * ranks));
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<std::int64_t> elements = expected(placement, part, rank);
          for (const std::int64_t e : elements) had[static_cast<std::size_t>(e)] = true;
          for (std::int64_t first = 0; first < part.numel(); ++first)
            for (std::int64_t length = 1; first + length <= part.numel(); ++length) {
              std::vector<std::int64_t> made;
              for (const ElementRun& run : placement.runs(part, rank, {first, length}))
                for (std::int64_t i = 0; i < run.length; ++i) made.push_back(run.first + i);
              const std::vector<std::int64_t> wanted(elements.begin() + first, elements.begin() + first + length);
              ASSERT_EQ(made, wanted) << "rank " << rank << " dim " << dim << " from " << first;
            }
        }
        EXPECT_EQ(std::count(had.begin(), had.end(), true), part.numel() * ranks);
      }
}

/// Seven indices on three ranks: 3, 2 and 2, of which the smaller parts have one of padding.
TEST(TensorPlacement, PartsDifferByOneWhereTheRanksDoNotDivideTheDimension) {
  EXPECT_EQ(even_part(7, 3, 0), (ElementRun{0, 3}));
  EXPECT_EQ(even_part(7, 3, 1), (ElementRun{3, 2}));
  EXPECT_EQ(even_part(7, 3, 2), (ElementRun{5, 2}));
  const TensorPlacement rows{3, 0, {}, 7}, columns{3, 1, {}, 7};
  EXPECT_EQ(rows.whole({3, 4}), (Shape{7, 4}));
  EXPECT_EQ(rows.runs({3, 4}, 0, {0, 12}), (std::vector<ElementRun>{{0, 12}}));
  EXPECT_EQ(rows.runs({3, 4}, 1, {0, 12}), (std::vector<ElementRun>{{12, 8}, {-1, 4}}));
  EXPECT_EQ(rows.runs({3, 4}, 2, {7, 3}), (std::vector<ElementRun>{{27, 1}, {-1, 2}}));
  EXPECT_EQ(columns.whole({2, 3}), (Shape{2, 7}));
  EXPECT_EQ(columns.runs({2, 3}, 0, {0, 6}), (std::vector<ElementRun>{{0, 3}, {7, 3}}));
  EXPECT_EQ(columns.runs({2, 3}, 2, {0, 6}), (std::vector<ElementRun>{{5, 2}, {-1, 1}, {12, 2}, {-1, 1}}));
}

TEST(TensorPlacement, RowsAreOneRunAndReplicatedParametersTheirElements) {
  const TensorPlacement rows{4, 0};
  EXPECT_EQ(rows.runs({2, 3}, 3, {0, 6}), (std::vector<ElementRun>{{18, 6}}));
  EXPECT_EQ(rows.whole({2, 3}), (Shape{8, 3}));
  EXPECT_EQ(TensorPlacement().runs({2, 3}, 0, {1, 4}), (std::vector<ElementRun>{{1, 4}}));
}

}  // namespace
}  // namespace tessera::test
