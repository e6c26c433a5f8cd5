// Instructions for products of bf16 that no CPU at hand has: the model they are tested on, the proof they give before
// they are used, and what becomes of one that fails it.
#include "kernels/host/pair_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "amx_trap.hpp"
#include "kernels/host/pair_panels.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

using host::PairCandidate;
using host::PairChoice;
using host::PairKernel;
using host::PairTile;

/// 1×1 of C by the model, from pairs of numbers.
float by_model(const std::vector<std::array<float, 4>>& pairs, float sum) {  // a even, a odd, b even, b odd
  host::amx_bf16::TileConfig config;
  config.rows[0] = config.rows[1] = 1, config.row_bytes[0] = config.row_bytes[2] = 4;
  config.row_bytes[1] = static_cast<std::uint16_t>(4 * pairs.size()),
  config.rows[2] = static_cast<std::uint8_t>(pairs.size());
  std::vector<bf16> a, b;
  for (const auto& p : pairs) a.insert(a.end(), {bf16(p[0]), bf16(p[1])}), b.insert(b.end(), {bf16(p[2]), bf16(p[3])});
  AmxModel& model = AmxModel::own();
  model.configure(&config);
  model.load(0, &sum, 4);
  model.load(1, a.data(), 0);
  model.load(2, b.data(), 4);
  model.multiply(0, 1, 2);
  model.store(0, &sum, 4);
  model.release();
  return sum;
}

TEST(AmxModel, AddsEvenAndOddInChainsOfTheirOwnAndThenToC) {
  EXPECT_EQ(by_model({{1, 2, 3, 4}, {5, 6, 7, 8}}, 0.5F), 94.5F);
  EXPECT_EQ(by_model({{0x1p24F, 1, 1, 1}, {0, 1, 0, 1}}, 0), 0x1p24F + 2);  // one after another, each 1 would be lost
  EXPECT_EQ(by_model({{1, 0, 1, 0}}, 0x1p24F), 0x1p24F);                    // to even
  EXPECT_EQ(by_model({{3, 0, 1, 0}}, 0x1p24F), 0x1p24F + 4);
}

TEST(AmxModel, TakesSubnormalNumbersForZero) {
  EXPECT_EQ(by_model({{0x1p-127F, 0, 0x1p100F, 0}}, 0), 0);
  EXPECT_EQ(by_model({{0x1p-100F, 0, 0x1p-30F, 0}}, 0), 0);
  EXPECT_EQ(by_model({{0, 0, 0, 0}}, 0x1p-127F), 0);
  EXPECT_EQ(by_model({{0x1p-100F, 0, 0x1p-26F, 0}}, 0), 0x1p-126F);
}

TEST(PairProof, TilesThatAreRightProveThemselves) {
  for (const PairKernel* kernel : {&host::portable_pairs(), &host::portable_tiles(), &modelled_amx})
    EXPECT_TRUE(proves_itself(*kernel)) << kernel->name;
}

#ifdef TESSERA_AMX_BUILT
TEST(PairProof, TheObjectOfAmxProvesItself) {
  if (!AmxTrap::can_run()) GTEST_SKIP() << "this CPU has no AVX2";
  const AmxTrap trap;
  AmxTrap::trapped = 0;
  EXPECT_TRUE(proves_itself(trapped_amx));
  // Three blocks of k: configure, four tiles of C, release. A tile: 8 instructions for each of 2, 1
  // and 1 groups, 4 before, 4 after.
  EXPECT_EQ(AmxTrap::trapped, trap.is_native() ? 0 : 3 * 2 + 4 * ((2 + 1 + 1) * 8 + 3 * 8));
}
#endif

/// A right tile, and then what is done to it.
template <void (*spoil)(PairTile&, const PairTile&)>
void spoiled(const PairTile& tile) {
  PairTile changed = tile;
  spoil(changed, tile);
  host::portable_tiles().tile(changed);
}
constexpr auto short_of_a_group = [](PairTile& t, const PairTile&) { t.pairs -= 16; };
constexpr auto without_alpha = [](PairTile& t, const PairTile&) { t.alpha = 1; };
constexpr auto without_c = [](PairTile& t, const PairTile&) { t.add = false; };
constexpr auto always_with_c = [](PairTile& t, const PairTile&) { t.add = true; };
constexpr auto words_of_b = [](PairTile& t, const PairTile&) { t.a = t.b; };  // as many
constexpr auto beside_c = [](PairTile& t, const PairTile&) { t.c[36] = 0; };

constexpr PairKernel broken{.name = "broken", .shape = host::tile_shape, .tile = spoiled<short_of_a_group>};

TEST(PairProof, TilesThatAreWrongDoNot) {
  const auto fails = [](void (*tile)(const PairTile&)) {
    return !host::proves_itself({.name = "wrong", .shape = host::tile_shape, .tile = tile});
  };
  EXPECT_TRUE(fails(spoiled<short_of_a_group>));
  EXPECT_TRUE(fails(spoiled<without_alpha>));
  EXPECT_TRUE(fails(spoiled<without_c>));
  EXPECT_TRUE(fails(spoiled<always_with_c>));
  EXPECT_TRUE(fails(spoiled<words_of_b>));
  EXPECT_TRUE(fails(spoiled<beside_c>));
}

TEST(PairChoice, ABrokenTileIsPassedOverLoudly) {
  const PairKernel absent{.name = "absent"};
  const std::array<PairCandidate, 3> candidates{
      {{absent, "the CPU lacks it"}, {broken, ""}, {host::portable_pairs(), ""}}};
  testing::internal::CaptureStderr();
  const PairChoice choice = choose_pairs(candidates);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(choice.kernel, &candidates[2].kernel);
  EXPECT_EQ(choice.passed_over, "no absent: the CPU lacks it; no broken: it multiplies wrongly");
  EXPECT_THAT(said, testing::StartsWith("warning W030: broken of " + host::cpu_name() + " multiplies wrongly"));
}

TEST(PairChoice, WithoutARightOneHalvesAreUpcast) {
  PairKernel other = broken;
  other.name = "broken too";  // the same words are said once
  const std::array<PairCandidate, 1> candidates{{{other, ""}}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(choose_pairs(candidates).kernel, nullptr);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("W030"));
}

}  // namespace
}  // namespace tessera::kernels
