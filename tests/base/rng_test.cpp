// SPDX-License-Identifier: Apache-2.0
// Random numbers: Philox' published vectors, moments, and permutations that are permutations.
#include "runtime/base/rng.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera {
namespace {

TEST(Rng, PhiloxKnownAnswers) {
  // Random123's kat_vectors, philox4x32 10 rounds.
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, Hash64IsFnv1a) {
  EXPECT_EQ(hash64(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(hash64("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(hash64("foobar"), 0x85944171f73967e8ull);
}

TEST(Rng, UniformAndNormalMoments) {
  const int n = 200000;
  double mean = 0, square = 0, normal_mean = 0, normal_square = 0, normal_fourth = 0, neighbors = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double u = uniform(7, i), z = normal(7, i);
    ASSERT_TRUE(u >= 0 && u < 1);
    ASSERT_TRUE(std::isfinite(z));
    mean += u, square += u * u, normal_mean += z, normal_square += z * z, normal_fourth += z * z * z * z;
    neighbors += z * normal(7, i + 1);
  }
  const double tolerance = 5 / std::sqrt(static_cast<double>(n));  // five standard errors and more
  EXPECT_NEAR(mean / n, 0.5, tolerance / 3);
  EXPECT_NEAR(square / n, 1.0 / 3, tolerance / 3);
  EXPECT_NEAR(normal_mean / n, 0, tolerance);
  EXPECT_NEAR(normal_square / n, 1, 1.5 * tolerance);
  EXPECT_NEAR(normal_fourth / n, 3, 10 * tolerance);
  EXPECT_NEAR(neighbors / n, 0, tolerance);
}

TEST(Rng, PermuteIsABijection) {
  for (std::uint64_t n : {1ull, 2ull, 3ull, 4ull, 5ull, 7ull, 8ull, 9ull, 31ull, 32ull, 33ull, 100ull, 127ull, 1000ull,
                          1024ull, 1025ull, 4099ull, 65537ull}) {
    for (std::uint64_t key : {0ull, 1ull, 0x123456789abcdefull}) {
      std::vector<bool> seen(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        const std::uint64_t p = permute(key, n, i);
        ASSERT_LT(p, n);
        ASSERT_FALSE(seen[p]) << "n " << n << " key " << key << " index " << i;
        seen[p] = true;
      }
    }
  }
}

TEST(Rng, PermuteMixes) {
  // The first half of the indices must land evenly in both halves, and keys must differ.
  const std::uint64_t n = 10007;
  std::int64_t low = 0, fixed = 0, same = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t p = permute(5, n, i);
    if (i < n / 2 && p < n / 2) ++low;
    fixed += p == i;
    same += p == permute(6, n, i);
  }
  EXPECT_NEAR(static_cast<double>(low), static_cast<double>(n) / 4, 200);  // standard deviation 25
  EXPECT_LT(fixed, 10);
  EXPECT_LT(same, 10);
}

TEST(Rng, PermuteOfHugeRanges) {
  const std::uint64_t n = (1ull << 40) + 12345;
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(permute(3, n, i * 1000003), n);
}

}  // namespace
}  // namespace tessera
