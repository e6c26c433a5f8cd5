// SPDX-License-Identifier: Apache-2.0
// Initializers: the documented definition, ranges that start at any element, the same bits everywhere, moments.
#include "kernels/init.hpp"

#include <set>

#include "reference.hpp"

namespace tessera::kernels {
namespace {

ParamSpec normal_param(std::int64_t n, std::string name = "h.0.attn.c_attn.weight") {
  return {.name = std::move(name), .shape = {n}, .init = {Initializer::Kind::normal, 0.02}};
}

std::vector<float> drawn(const ParamSpec& param, std::uint64_t seed, std::int64_t first, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count) + 1, -7.0F);
  initialize(param, seed, first, count, out.data());
  EXPECT_EQ(out.back(), -7.0F) << "wrote past the end";
  out.pop_back();
  return out;
}

TEST(Init, IsAsDefined) {
  const auto param = normal_param(1003);
  const auto words = philox(42, hash64(param.name));
  const std::uint64_t key = static_cast<std::uint64_t>(words[1]) << 32 | words[0];
  const auto values = drawn(param, 42, 0, 1003);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto w = philox(key, i / 4);
    const auto half = i % 4 / 2 * 2;
    const double radius = std::sqrt(-2 * std::log((w[half] + 0.5) / 4294967296.0)),
                 angle = 2 * M_PI * w[half + 1] / 4294967296.0;
    EXPECT_NEAR(static_cast<double>(values[i]), 0.02 * radius * (i % 2 ? std::sin(angle) : std::cos(angle)), 1e-8) << i;
  }
}

TEST(Init, SameBitsEverywhere) {
  const auto param = normal_param(30000);
  std::vector<float> truth;
  for (const Isa set : instruction_sets())
    for (const int num : {1, 2, 3}) {
      const Setting setting(num, set);
      const auto values = drawn(param, 1, 0, 30000);
      if (truth.empty()) truth = values;
      EXPECT_EQ(values, truth) << name_of(set) << " " << num;
    }
  for (std::int64_t first : {0, 1, 2, 3, 4, 5, 255, 256, 257, 1023, 29990, 30000})
    for (std::int64_t count : {0, 1, 2, 3, 4, 5, 7, 255, 256, 259, 5000}) {
      if (first + count > 30000) continue;
      const auto values = drawn(param, 1, first, count);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), truth.begin() + first)) << first << " + " << count;
    }
}

TEST(Init, FarIntoAHugeParameter) {
  const auto param = normal_param(std::int64_t{1} << 40);
  const std::int64_t far = (std::int64_t{1} << 39) + 3;
  const auto values = drawn(param, 1, far, 100), again = drawn(param, 1, far + 50, 50);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), values.begin() + 50));
  EXPECT_NE(values, drawn(param, 1, far - (std::int64_t{1} << 34), 100));  // the high half of the counter matters
}

TEST(Init, SeedsAndNamesDiffer) {
  std::set<std::vector<float>> all;
  for (std::uint64_t seed : {0, 1, 42})
    for (const char* name : {"wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight", "h.1.mlp.c_fc.weight"})
      all.insert(drawn(normal_param(16, name), seed, 0, 16));
  EXPECT_EQ(all.size(), 12u);
}

TEST(Init, Moments) {
  const std::int64_t n = 1 << 20;
  const auto values = drawn(normal_param(n), 7, 0, n);
  double sum = 0, square = 0, fourth = 0, largest = 0, lag[5] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double z = static_cast<double>(values[i]) / 0.02;
    ASSERT_TRUE(std::isfinite(z));
    sum += z, square += z * z, fourth += z * z * z * z, largest = std::max(largest, std::abs(z));
    for (std::size_t k = 1; k < 5 && i + k < values.size(); ++k)
      lag[k] += z * static_cast<double>(values[i + k]) / 0.02;
  }
  const double count = static_cast<double>(n);
  EXPECT_NEAR(sum / count, 0, 0.005);
  EXPECT_NEAR(square / count, 1, 0.008);
  EXPECT_NEAR(fourth / count, 3, 0.06);
  EXPECT_GT(largest, 4);
  for (const double l : lag) EXPECT_NEAR(l / count, 0, 0.005);
}

TEST(Init, ZerosAndOnes) {
  const ParamSpec zeros{.name = "b", .shape = {10}},
      ones{.name = "w", .shape = {10}, .init = {Initializer::Kind::ones, 0}};
  EXPECT_EQ(drawn(zeros, 1, 2, 5), std::vector<float>(5, 0.0F));
  EXPECT_EQ(drawn(ones, 1, 2, 5), std::vector<float>(5, 1.0F));
  EXPECT_THROW(drawn(ones, 1, 8, 3), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
