// SPDX-License-Identifier: Apache-2.0
// Samples of similar length beside one another: still every sample once, whatever batches are made of them.
#include "io/data/length_order.hpp"

#include <gtest/gtest.h>

#include <set>

#include "runtime/base/rng.hpp"

namespace tessera {
namespace {

std::int64_t length_of(std::int64_t sample) {
  return 1 + static_cast<std::int64_t>(philox(5, static_cast<std::uint64_t>(sample), 0)[0] % 1000);
}

/// The samples of an epoch, whose order without lengths is n - 1, …, 0.
std::vector<std::int64_t> epoch_of(io::LengthOrder& order, std::int64_t n, std::int64_t epoch) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i)
    all.push_back(order.sample(epoch, i, [&](std::int64_t place) { return n - 1 - place; }));
  return all;
}

TEST(LengthOrder, HasEverySampleOnceAndNeighboursOfSimilarLength) {
  for (const std::int64_t n : {1, 63, 64, 65, 1000, 4096, 4100, 9000}) {
    io::LengthOrder order(n, 7, length_of);
    const auto first = epoch_of(order, n, 0), second = epoch_of(order, n, 1);
    EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), static_cast<std::size_t>(n));
    EXPECT_EQ(first, epoch_of(order, n, 0)) << n;
    EXPECT_TRUE(n < 1000 || first != second);
    for (std::int64_t run = 0; (run + 1) * 64 <= std::min<std::int64_t>(n, 4096); ++run)
      for (std::int64_t i = run * 64 + 1; i < (run + 1) * 64; ++i)
        EXPECT_GE(length_of(first[static_cast<std::size_t>(i - 1)]), length_of(first[static_cast<std::size_t>(i)]));
  }
  const std::int64_t n = 4096;
  io::LengthOrder order(n, 7, length_of);
  const auto samples = epoch_of(order, n, 0);
  std::int64_t padded = 0, tokens = 0;
  for (std::int64_t i = 0; i < n; i += 8) {  // micro-batches of 8 rows
    std::int64_t longest = 0;
    for (std::int64_t k = i; k < i + 8; ++k) {
      const std::int64_t length = length_of(samples[static_cast<std::size_t>(k)]);
      longest = std::max(longest, length);
      tokens += length;
    }
    padded += 8 * longest;
  }
  EXPECT_LT(static_cast<double>(padded) / static_cast<double>(tokens), 1.01);  // 1.8 without
  EXPECT_GT(length_of(samples[0]) % 1000, 0);
}

TEST(LengthOrder, RunsAreNotFromLongToShort) {
  io::LengthOrder order(4096, 7, length_of);
  const auto samples = epoch_of(order, 4096, 0);
  int rises = 0;
  for (std::size_t run = 1; run < 64; ++run) rises += length_of(samples[run * 64]) > length_of(samples[run * 64 - 64]);
  EXPECT_GT(rises, 16);
  EXPECT_LT(rises, 48);
}

TEST(LengthOrder, OfASeedNeverChanges) {
  io::LengthOrder order(1000, 42, length_of);
  const auto samples = epoch_of(order, 1000, 0);
  EXPECT_EQ((std::vector<std::int64_t>{samples[0], samples[1], samples[2], samples[999]}),
            (std::vector<std::int64_t>{288, 192, 856, 708}));
}

}  // namespace
}  // namespace tessera
