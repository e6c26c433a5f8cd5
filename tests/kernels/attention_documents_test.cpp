// SPDX-License-Identifier: Apache-2.0
// Lists of documents: every token is in one document, groups are by length, padding is in short pieces.
#include "kernels/attention_documents.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels {
namespace {

/// Rows of documents of these lengths; what is left of a row is padding.
struct Packed {
  Packed(std::int64_t tokens_, const std::vector<std::vector<std::int64_t>>& rows_)
      : rows(static_cast<std::int64_t>(rows_.size())), tokens(tokens_) {
    std::int64_t end = 0;
    for (const auto& row : rows_) {
      for (const std::int64_t length : row)
        for (std::int64_t t = 0; t < length; ++t) {
          positions.push_back(static_cast<std::int32_t>(t));
          targets.push_back(t + 1 < length ? 1 : ignore_index);
        }
      for (end += tokens; static_cast<std::int64_t>(positions.size()) < end;) {
        positions.push_back(0);
        targets.push_back(ignore_index);
      }
    }
    starts.resize(positions.size(), -1);
    lengths.resize(positions.size(), -1);
    groups = list_documents({rows, tokens, positions.data(), targets.data()}, starts.data(), lengths.data());
  }
  [[nodiscard]] std::vector<std::pair<int, int>> of(std::size_t group) const {
    const DocumentGroup g = groups.list()[group];
    std::vector<std::pair<int, int>> all;
    for (std::int64_t i = g.first; i < g.first + g.count; ++i)
      all.emplace_back(starts[static_cast<std::size_t>(i)], lengths[static_cast<std::size_t>(i)]);
    return all;
  }
  std::int64_t rows, tokens;
  std::vector<std::int32_t> positions, targets, starts, lengths;
  DocumentGroups groups;
};

using Documents = std::vector<std::pair<int, int>>;

TEST(AttentionDocuments, AreGroupedByLength) {
  const Packed p(600, {{100, 300, 129, 71}, {128, 472}});
  ASSERT_EQ(p.groups.list().size(), 3u);
  EXPECT_EQ(p.groups.list()[0].tokens, 128);
  EXPECT_EQ(p.of(0), (Documents{{0, 100}, {529, 71}, {600, 128}}));
  EXPECT_EQ(p.groups.list()[1].tokens, 256);
  EXPECT_EQ(p.of(1), (Documents{{400, 129}}));
  EXPECT_EQ(p.groups.list()[2].tokens, 512);
  EXPECT_EQ(p.of(2), (Documents{{100, 300}, {728, 472}}));
}

TEST(AttentionDocuments, PaddingIsInShortPieces) {
  const Packed p(1000, {{600}, {999}, {1000}});
  ASSERT_EQ(p.groups.list().size(), 2u);
  EXPECT_EQ(p.of(0), (Documents{{600, 128}, {728, 128}, {856, 128}, {984, 16}, {1999, 1}}));
  EXPECT_EQ(p.of(1), (Documents{{0, 600}, {1000, 999}, {2000, 1000}}));
}

TEST(AttentionDocuments, OfOneTokenWithATargetAreNoPadding) {
  const std::vector<std::int32_t> positions = {0, 0, 0, 1}, targets = {5, ignore_index, 3, ignore_index};
  std::vector<std::int32_t> starts(4), lengths(4);
  const DocumentGroups groups = list_documents({1, 4, positions.data(), targets.data()}, starts.data(), lengths.data());
  ASSERT_EQ(groups.list().size(), 1u);
  EXPECT_EQ(groups.list()[0].count, 3);
  EXPECT_EQ(starts, (std::vector<std::int32_t>{0, 1, 2, 0}));
  EXPECT_EQ(lengths, (std::vector<std::int32_t>{1, 1, 2, 0}));
}

TEST(AttentionDocuments, BeginWithTheirRow) {  // a piece of a document that began in the row before
  const std::vector<std::int32_t> positions = {7, 8, 0, 3, 4, 5}, targets(6, 1);
  std::vector<std::int32_t> starts(6), lengths(6);
  const DocumentGroups groups = list_documents({2, 3, positions.data(), targets.data()}, starts.data(), lengths.data());
  EXPECT_EQ(groups.list()[0].count, 3);
  EXPECT_EQ(lengths, (std::vector<std::int32_t>{2, 1, 3, 0, 0, 0}));
}

TEST(AttentionDocuments, HaveEveryTokenOnce) {
  const Packed p(4096, {{1, 2, 3000, 65, 1}, {4096}, {17, 33, 2048}, {}});
  std::vector<int> seen(p.positions.size());
  std::int64_t listed = 0;
  for (const DocumentGroup& group : p.groups.list()) {
    EXPECT_EQ(group.first, listed);
    listed += group.count;
    for (std::int64_t i = group.first; i < group.first + group.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_LE(p.lengths[at], group.tokens);
      EXPECT_TRUE(group.tokens == shortest_document_group || p.lengths[at] > group.tokens / 2);
      for (int t = 0; t < p.lengths[at]; ++t) ++seen[static_cast<std::size_t>(p.starts[at] + t)];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

}  // namespace
}  // namespace tessera::kernels
