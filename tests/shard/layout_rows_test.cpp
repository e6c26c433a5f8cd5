// SPDX-License-Identifier: Apache-2.0
// Rows of a parameter in several units.

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/shard/layout.hpp"

namespace tessera::shard {
namespace {

ParamSpec param(const std::string& name, const Shape& shape) { return {.name = name, .shape = shape}; }

/// Rows of a matrix in three units, one of which has another parameter, too.
TEST(Layout, RowsOfAParameterInSeveralUnits) {
  const std::vector<ParamSpec> params = {param("wte", {10, 96}), param("ln", {40}), param("wpe", {3, 96})};
  const std::vector<UnitSpec> units = {{.name = "embed.0", .params = {0}, .rows = {{0, 4}}},
                                       {.name = "embed.1", .params = {0}, .rows = {{4, 4}}},
                                       {.name = "h", .params = {1}},
                                       {.name = "embed.2", .params = {0, 2}, .rows = {{8, 2}, {}}}};
  for (const int world : {1, 3, 4}) {
    const ShardLayout layout(params, units, Mesh(1, world));
    EXPECT_EQ(layout.unit_of(0), 0);
    EXPECT_EQ(layout.unit_of(0, 7), 1);
    EXPECT_EQ(layout.offset_of(0, 7), 3 * 96);
    EXPECT_EQ(layout.unit_of(0, 9), 3);
    EXPECT_EQ(layout.offset_of(0, 9), 96);
    EXPECT_EQ(layout.unit_of(2), 3);
    EXPECT_EQ(layout.offset_of(2), 192);
    EXPECT_EQ(layout.numel(3), 5 * 96);
    EXPECT_EQ(layout.all_segments(1), (std::vector<Segment>{{.param = 0, .param_offset = 384, .length = 384}}));
    std::vector<int> owners(960, 0);
    for (int u = 0; u < layout.num_units(); ++u)
      for (int s = 0; s < world; ++s)
        for (const Segment& segment : layout.segments(u, s)) {
          if (segment.param != 0) continue;
          const std::int64_t row = segment.param_offset / 96;
          EXPECT_EQ(layout.unit_of(0, row), u);
          EXPECT_EQ(layout.offset_of(0, row) + segment.param_offset % 96, segment.unit_offset);
          for (std::int64_t e = 0; e < segment.length; ++e)
            ++owners[static_cast<std::size_t>(segment.param_offset + e)];
        }
    EXPECT_EQ(std::ranges::count(owners, 1), 960);
  }
  const auto error = [&](RowRange first, RowRange second, std::int64_t granularity) -> std::string {
    try {
      (void)ShardLayout(
          params,
          std::vector<UnitSpec>{{.name = "a", .params = {0, 1, 2}, .rows = {first, {}, {}}},
                                {.name = "b", .params = {0}, .rows = {second}, .granularity = granularity}},
          Mesh(1, 2));
    } catch (const std::logic_error& e) { return e.what(); }
    return "";
  };
  EXPECT_EQ(error({0, 4}, {4, 6}, 1), "");
  EXPECT_EQ(error({0, 5}, {4, 6}, 1), "wte is in two units: a and b");
  EXPECT_EQ(error({0, 4}, {5, 5}, 1), "wte has rows that are in no unit");
  EXPECT_EQ(error({0, 4}, {4, 5}, 1), "wte has rows that are in no unit");
  EXPECT_EQ(error({0, 4}, {4, 6}, 256), "row 4 of wte begins inside a block of states");
}

TEST(Layout, WholeParametersHaveNoRowsElsewhere) {
  const std::vector<ParamSpec> params = {param("w", {8, 64})};
  const std::vector<UnitSpec> units = {{.name = "a", .params = {0}, .rows = {{0, 8}}, .whole_params = true}};
  EXPECT_THROW(ShardLayout(params, units, Mesh(1, 2)), std::logic_error);
}

}  // namespace
}  // namespace tessera::shard
