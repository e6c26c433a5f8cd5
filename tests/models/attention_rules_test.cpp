// SPDX-License-Identifier: Apache-2.0
// A model whose attention has a scale, a window, a soft cap and sinks, as a family sets them: gradients against finite
// differences in double, recomputation, frozen sinks, packed rows, and generation with a cache.
#include <gtest/gtest.h>

#include <cmath>

#include "models/attention.hpp"
#include "models/block.hpp"
#include "models/embedding.hpp"
#include "models/head.hpp"
#include "runner.hpp"

namespace tessera::test::attention_rules {
namespace {

using models::BatchShape;

constexpr std::int64_t vocab = 11, channels = 6, heads = 4, kv_heads = 2, head_dim = 4, tokens = 9;

models::Model make() {
  models::Model m;
  m.hidden = channels;
  m.vocab = vocab;
  m.max_tokens = tokens;
  m.packs = true;
  m.dtype = DType::f64;
  m.modules.push_back(std::make_unique<models::Embedding>(models::EmbeddingSpec{.tokens = "tokens",
                                                                                .positions = "positions",
                                                                                .vocab = vocab,
                                                                                .max_tokens = tokens,
                                                                                .channels = channels,
                                                                                .std = 0.02},
                                                          m.params));
  for (const std::string name : {"h.0", "h.1"}) {
    models::ParamList params(m.params);
    models::BlockParts block{.name = name, .group = name, .channels = channels};
    const models::Norm norm({.prefix = name + ".norm", .channels = channels, .eps = 1e-5}, params);
    models::AttentionSpec spec{.heads = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim},
                               .qkv = {{name + ".qkv", channels, (heads + 2 * kv_heads) * head_dim}},
                               .out = {name + ".out", heads * head_dim, channels}};
    spec.rules = {.scale = 0.9, .window = 3, .soft_cap = 0.4};
    spec.rules.sinks = ParamSpec{.name = name + ".sinks", .shape = {heads}};
    block.residuals.emplace_back(norm, std::make_unique<models::Attention>(spec, params));
    block.params = params.indices();
    m.modules.push_back(std::make_unique<models::Block>(std::move(block)));
  }
  m.modules.push_back(std::make_unique<models::Head>(
      models::HeadSpec{
          .norm = {.prefix = "last", .channels = channels, .eps = 1e-5}, .vocab = vocab, .channels = channels},
      m.params));
  return m;
}

struct AttentionRules : testing::Test {
  AttentionRules() { runner.randomize(3); }
  std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> all;
    for (std::size_t p = 0; p < model.params.size(); ++p) all.push_back(values(runner.grad(static_cast<int>(p))));
    return all;
  }
  static constexpr BatchShape shape{2, tokens};
  models::Model model = make();
  Runner runner{model, shape};
  std::vector<std::int32_t> ids = random_ids(shape, vocab, 1), targets = random_ids(shape, vocab, 2);
};

TEST_F(AttentionRules, GradientsOfEveryModule) {
  for (std::size_t m = 0; m < model.modules.size(); ++m) runner.check_module(m, shape, ids, targets);
}

TEST_F(AttentionRules, RecomputingChangesNoBitAndAccumulationAdds) {
  (void)runner.train(shape, ids, targets, 0.1);
  const auto once = gradients();
  EXPECT_GT(norm(runner.grad(runner.index("h.0.sinks"))), 1e-6);
  for (const bool selective : {false, true}) {
    (void)runner.train(shape, ids, targets, 0.1, {.recompute = true, .selective = selective, .accumulate = {}});
    EXPECT_EQ(gradients(), once) << selective;
  }
  Step again;
  again.accumulate.assign(model.params.size(), 1);
  (void)runner.train(shape, ids, targets, 0.1, again);
  const auto twice = gradients();
  for (std::size_t p = 0; p < once.size(); ++p)
    for (std::size_t i = 0; i < once[p].size(); ++i)
      EXPECT_NEAR(twice[p][i], 2 * once[p][i], 1e-13) << model.params[p].name;
}

TEST_F(AttentionRules, AnyGradientsMayBeAbsent) {
  const auto sinks = static_cast<std::size_t>(std::ranges::find(model.modules[1]->params(), runner.index("h.0.sinks")) -
                                              model.modules[1]->params().begin());
  const std::size_t count = model.modules[1]->params().size();
  const auto all = runner.module_gradients(1, shape, ids, targets, std::vector<std::uint8_t>(count, 1), /*dx=*/true);
  std::vector<std::uint8_t> wanted(count, 0);
  wanted[sinks] = 1;
  const auto alone = runner.module_gradients(1, shape, ids, targets, wanted, /*dx=*/false);
  EXPECT_EQ(alone.params[sinks], all.params[sinks]);
  wanted.assign(count, 1);
  wanted[sinks] = 0;
  const auto others = runner.module_gradients(1, shape, ids, targets, wanted, /*dx=*/true);
  EXPECT_EQ(others.dx, all.dx);
}

TEST_F(AttentionRules, APackedDocumentIsARowOfItsOwn) {
  const auto sum = [&] { return runner.sums.loss.value(); };
  (void)runner.evaluate({1, 5}, {1, 2, 3, 4, 5}, {2, 3, 4, 5, 6});
  (void)runner.evaluate({1, 4}, {7, 8, 9, 1}, {8, 9, 1, 2});
  const double apart = sum();
  runner.sums = {};
  runner.packed = {0, 1, 2, 3, 4, 0, 1, 2, 3};
  (void)runner.evaluate({1, 9}, {1, 2, 3, 4, 5, 7, 8, 9, 1}, {2, 3, 4, 5, 6, 8, 9, 1, 2});
  EXPECT_NEAR(sum(), apart, 1e-12);
}

TEST_F(AttentionRules, HoldWithACache) {
  runner.open_cache({1, tokens, 4});
  const std::vector<std::int32_t> all(ids.begin(), ids.begin() + tokens);
  (void)runner.cached_logits({1, 4}, {all.begin(), all.begin() + 4}, {}, {4});
  const auto five = runner.cached_logits({1, 1}, {all[4]}, {4}, {});
  const auto nine = runner.cached_logits({1, 4}, {all.begin() + 5, all.end()}, {5, 6, 7, 8}, {});
  const auto expect_near = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  };
  expect_near(five, runner.logits({1, 5}, {all.begin(), all.begin() + 5}));
  expect_near(nine, runner.logits({1, 9}, all));
}

}  // namespace
}  // namespace tessera::test::attention_rules
