// SPDX-License-Identifier: Apache-2.0
// Packed samples in training: bit equality as without packing; a packed sample equals its documents one by one.
#include <gtest/gtest.h>

#include <cmath>

#include "io/data/packing.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

/// 900 tokens in documents of 1 to 23, in samples of T.
io::PackedStream packed(std::int64_t tokens, io::Packing packing = io::Packing::binpack) {
  static const std::vector<std::int64_t> ends = [] {
    std::vector<std::int64_t> all;
    for (std::int64_t at = 0, i = 0; at < 900; ++i)
      all.push_back(at = std::min<std::int64_t>(900, at + 1 + i * i % 23));
    return all;
  }();
  return {std::make_shared<RandomTokens>(900, 37), {0, ends}, tokens, packing};
}

class Packed : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  DType dtype_ = std::get<DType>(GetParam());
  models::Model model_ = models::make(std::get<std::string>(GetParam()), "test", dtype_);
  io::PackedStream stream_ = packed(13);
  Outcome outcome(Variant variant) {
    variant.dtype = dtype_;
    return run({&model_, &stream_, 3, "", true, {}}, variant);
  }
};

TEST_P(Packed, SameBitsAtEveryStageAndWithEveryKnob) {
  for (const int world : {1, 3}) {
    const Variant base{.world = world, .strategy = "0", .global_batch = 7, .micro_batch = 2, .tokens = 13};
    const Outcome first = outcome(base);
    for (const auto tokens : first.tokens) EXPECT_TRUE(tokens > 0 && tokens < 7 * 13) << tokens;
    Variant v = base;
    for (const char* stage : {"1", "2", "3"}) {
      v.strategy = stage;
      v.copies = stage[0] == '2';
      EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
    }
    if (dtype_ != DType::f32) {  // bf16 gradients: other bits, the same at every stage
      v.reduce_dtype = dtype_;
      const Outcome last = outcome(v);
      v.strategy = "0";
      EXPECT_EQ(difference(last, outcome(v)), "") << v.str();
      v.strategy = "3", v.reduce_dtype = DType::f32;
    }
    v.recompute = true;
    v.prefetch = 2;
    EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
  }
}

TEST_P(Packed, WorldAndSplitChangeNothingButRounding) {
  if (model_.router.layers > 0) GTEST_SKIP() << "the balance loss depends on how a batch is cut";
  const double rounding = dtype_ == DType::f32 ? 2e-5 : 1e-2;  // rounding of 16-bit sums
  const Outcome full = outcome({.world = 1, .global_batch = 7, .micro_batch = 7, .tokens = 13});
  for (const auto& [world, micro] : {std::pair{1, 2}, {2, 2}, {3, 1}}) {
    const Outcome o = outcome({.world = world, .global_batch = 7, .micro_batch = micro, .tokens = 13});
    EXPECT_EQ(o.tokens, full.tokens);
    for (std::size_t s = 0; s < o.losses.size(); ++s) {
      EXPECT_NEAR(o.losses[s], full.losses[s], rounding * full.losses[s]);
      EXPECT_NEAR(o.norms[s], full.norms[s], rounding * full.norms[s]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Packed,
                         ::testing::Combine(::testing::Values(config_json({}), std::string(qwen3_config),
                                                              std::string(experts_config)),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)));

/// Lengths of 8 to 13: one document in samples of 13, two or three in samples of 39.
TEST(PackedRuns, PackedStepEqualsSeparateDocumentsInEveryDtype) {
  std::vector<std::int64_t> ends;
  for (std::int64_t at = 0, i = 0; i < 12; ++i) ends.push_back(at += 8 + i * i % 6);
  const auto tokens = std::make_shared<RandomTokens>(ends.back(), 37);
  const io::PackedStream alone(tokens, {0, ends}, 13, io::Packing::sequential),
      joint(tokens, {0, ends}, 39, io::Packing::binpack);
  ASSERT_EQ(alone.count().samples, 12);
  ASSERT_LE(joint.count().samples, 5);
  std::string qwen3 = qwen3_config;
  qwen3.replace(qwen3.find("16"), 2, "40");  // positions
  for (const std::string& config : {config_json({.positions = 40}), qwen3})
    for (const auto& [dtype, rounding] : {std::pair{DType::f32, 2e-6}, {DType::bf16, 4e-3}, {DType::f16, 5e-4}}) {
      const models::Model model = models::make(config, "test", dtype);
      const auto step = [&](const io::PackedStream& stream, int world) {
        const Variant v{.world = world,
                        .global_batch = stream.count().samples,
                        .micro_batch = 2,
                        .tokens = stream.tokens(),
                        .dtype = dtype};
        return run({&model, &stream, 1, "", false, {}}, v);
      };
      const Outcome a = step(alone, 1), b = step(joint, 2);
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_NEAR(b.losses[0], a.losses[0], rounding * a.losses[0]) << name_of(dtype);
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < a.grads.size(); ++i) {
        error += std::pow(static_cast<double>(a.grads[i]) - b.grads[i], 2);
        norm += std::pow(static_cast<double>(a.grads[i]), 2);
      }
      EXPECT_GT(norm, 0);
      EXPECT_LT(std::sqrt(error / norm), 5 * rounding) << name_of(dtype);
    }
}

TEST(PackedRuns, WeightsFollowTheirTokens) {
  const models::Model model = models::make(config_json({.positions = 40}), "test");
  std::vector<std::int64_t> ends;
  for (std::int64_t at = 0, i = 0; i < 12; ++i) ends.push_back(at += 8 + i * i % 6);
  const auto plain = std::make_shared<RandomTokens>(ends.back(), 37);
  const auto outcome = [&](const std::shared_ptr<const io::TokenStream>& tokens, std::int64_t length) {
    const io::PackedStream stream(tokens, {0, ends}, length, io::Packing::binpack);
    const Variant v{.world = 2, .global_batch = stream.count().samples, .micro_batch = 2, .tokens = length};
    return run({&model, &stream, 2, "", true, {}}, v);
  };
  const auto weighted = [&](const std::vector<float>& weights) {
    return std::make_shared<WeightedTokens>(plain, weights);
  };
  EXPECT_EQ(difference(outcome(weighted({1}), 39), outcome(plain, 39)), "");
  const std::vector<float> weights = {2, 0.5F, 0, 1, 0.25F};
  const Outcome alone = outcome(weighted(weights), 13), joint = outcome(weighted(weights), 39);
  EXPECT_NE(difference(joint, outcome(plain, 39)), "");
  EXPECT_EQ(alone.tokens, joint.tokens);
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_NEAR(alone.losses[s], joint.losses[s], 2e-6 * joint.losses[s]);
    EXPECT_NEAR(alone.norms[s], joint.norms[s], 2e-5 * joint.norms[s]);
  }
}

TEST(PackedRuns, FlopsCountDocuments) {
  const models::Model model = models::make(config_json({}), "test");
  run_local(2, [&](World& world) {
    train::TrainerOptions options = options_of(model, {.world = 2, .global_batch = 4, .tokens = 13}, 2);
    options.run.packed = true;
    const std::vector<std::int64_t> ends = {10, 16, 17, 30, 32};  // 10; 6; one token, dropped; 13; 2
    io::PackedStream stream(std::make_shared<RandomTokens>(32, 37), {0, ends}, 13, io::Packing::binpack);
    train::Trainer trainer(world, options);
    trainer.initialize();
    const auto report = trainer.step(stream, io::Sampler(stream.count().samples, false, 1), 0, stream.count().samples);
    EXPECT_EQ(report.tokens, 9 + 5 + 12 + 1);
    EXPECT_EQ(report.flops, model.train_flops(31, 100 + 36 + 169 + 4));
    EXPECT_LT(report.flops, 31 * model.train_flops_per_token(13));
    EXPECT_EQ(trainer.arena().broken_canary(), "");
  });
}

TEST(PackedRuns, PackedEvaluationEqualsSeparateDocumentsOnAnyWorld) {
  const models::Model model = models::make(config_json({.positions = 32}), "test");
  const auto evaluate = [&](const io::TokenStream& stream, std::int64_t tokens, int world) {
    infer::EvalReport report;
    run_local(world, [&](World& w) {
      train::TrainerOptions options = options_of(model, {.world = world, .micro_batch = 2, .tokens = tokens}, 1);
      options.run.packed = true;
      train::Trainer trainer(w, options);
      trainer.initialize();
      const infer::EvalReport mine = trainer.evaluate(stream);
      if (w.rank() == 0) report = mine;
    });
    return report;
  };
  // Samples of 23 hold several documents, or one and padding.
  const io::PackedStream joint = packed(31), in_order = packed(23, io::Packing::sequential);
  const infer::EvalReport one = evaluate(joint, 31, 1), other = evaluate(in_order, 23, 1);
  EXPECT_EQ(one.tokens, joint.count().targets);
  EXPECT_EQ(one.tokens, other.tokens);
  EXPECT_NEAR(one.loss, other.loss, 1e-6 * one.loss);
  for (const int world : {2, 3}) {
    const infer::EvalReport more = evaluate(joint, 31, world);
    EXPECT_EQ(more.loss, one.loss);
    EXPECT_EQ(more.token_accuracy, one.token_accuracy);
    EXPECT_EQ(more.tokens, one.tokens);
  }
}

TEST(PackedRuns, ModelsWithoutPackingSupportAreRefused) {
  models::Model model = models::make(config_json({}), "test");
  model.packs = false;
  plan::RunSpec spec = options_of(model, {}, 1).run;
  EXPECT_NO_THROW((void)plan::make_plan(spec));
  spec.packed = true;
  EXPECT_THROW((void)plan::make_plan(spec), Error);
}

}  // namespace
}  // namespace tessera::test
