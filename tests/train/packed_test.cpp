// Packed samples in whole steps: every stage, world, split and knob as without packing; a packed sample is its documents apart.
#include <gtest/gtest.h>

#include "io/packing.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

/// 900 tokens in documents of 1 to 23, in samples of T.
io::PackedStream packed(std::int64_t tokens, io::Packing packing = io::Packing::binpack) {
  static const std::vector<std::int64_t> ends = [] {
    std::vector<std::int64_t> all;
    for (std::int64_t at = 0, i = 0; at < 900; ++i) all.push_back(at = std::min<std::int64_t>(900, at + 1 + i * i % 23));
    return all;
  }();
  return {std::make_shared<MadeTokens>(900, 37), {0, ends}, tokens, packing};
}

class Packed : public ::testing::TestWithParam<std::string> {
 protected:
  models::Model model_ = models::make(GetParam(), "test");
  io::PackedStream stream_ = packed(13);
  Outcome outcome(const Variant& variant) { return run({&model_, &stream_, 3, "", true, {}}, variant); }
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
    v.recompute = true;
    v.prefetch = 2;
    EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
  }
}

TEST_P(Packed, WorldAndSplitChangeNothingButRounding) {
  if (model_.router.layers > 0) GTEST_SKIP() << "the balance loss depends on how a batch is cut";
  const Outcome whole = outcome({.world = 1, .global_batch = 7, .micro_batch = 7, .tokens = 13});
  for (const auto& [world, micro] : {std::pair{1, 2}, {2, 2}, {3, 1}}) {
    const Outcome o = outcome({.world = world, .global_batch = 7, .micro_batch = micro, .tokens = 13});
    EXPECT_EQ(o.tokens, whole.tokens);
    for (std::size_t s = 0; s < o.losses.size(); ++s) {
      EXPECT_NEAR(o.losses[s], whole.losses[s], 2e-5 * whole.losses[s]);
      EXPECT_NEAR(o.norms[s], whole.norms[s], 2e-5 * whole.norms[s]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Packed, ::testing::Values(config_json({}), std::string(qwen3_config), std::string(experts_config)));

TEST(PackedRuns, EvaluationIsThatOfEveryDocumentAloneOnAnyWorld) {
  const models::Model model = models::make(config_json({.positions = 32}), "test");
  const auto evaluate = [&](const io::TokenStream& stream, std::int64_t tokens, int world) {
    train::EvalReport report;
    run_local(world, [&](World& w) {
      train::TrainerOptions options = options_of(model, {.world = world, .micro_batch = 2, .tokens = tokens}, 1);
      options.run.packed = true;
      train::Trainer trainer(w, options);
      trainer.initialise();
      const train::EvalReport mine = trainer.evaluate(stream);
      if (w.rank() == 0) report = mine;
    });
    return report;
  };
  // Samples of 23 hold several documents, or one and padding; of a document alone where every one fills its sample's beginning.
  const io::PackedStream together = packed(31), in_order = packed(23, io::Packing::sequential);
  const train::EvalReport one = evaluate(together, 31, 1), other = evaluate(in_order, 23, 1);
  EXPECT_EQ(one.tokens, together.count().targets);
  EXPECT_EQ(one.tokens, other.tokens);
  EXPECT_NEAR(one.loss, other.loss, 1e-6 * one.loss);
  for (const int world : {2, 3}) {
    const train::EvalReport more = evaluate(together, 31, world);
    EXPECT_EQ(more.loss, one.loss);
    EXPECT_EQ(more.token_accuracy, one.token_accuracy);
    EXPECT_EQ(more.tokens, one.tokens);
  }
}

TEST(PackedRuns, AModelThatDoesNotKeepDocumentsApartIsRefused) {
  models::Model model = models::make(config_json({}), "test");
  model.packs = false;
  plan::RunSpec spec = options_of(model, {}, 1).run;
  EXPECT_NO_THROW((void)plan::make_plan(spec));
  spec.packed = true;
  EXPECT_THROW((void)plan::make_plan(spec), Error);
}

}  // namespace
}  // namespace tessera::test
