// SPDX-License-Identifier: Apache-2.0
// Finite differences in double: every module alone, and the whole model with its tied weight. Accumulation and short
// batches.
#include <gtest/gtest.h>

#include <cmath>

#include "runner.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::test::gradient {
namespace {

using models::BatchShape;

constexpr BatchShape shape{3, 5};
constexpr std::int32_t vocab = 11;

models::Model make_tiny() {
  return models::make(
      R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 7, "n_embd": 6, "n_layer": 2, "n_head": 2,
                          "n_inner": 10, "layer_norm_epsilon": 1e-5})",
      "tiny", DType::f64);
}

class Gradients : public testing::Test {
 protected:
  Gradients() {
    runner.randomize(3);
    targets[4] = kernels::ignore_index;
  }

  std::vector<std::vector<double>> all_grads() const {
    std::vector<std::vector<double>> grads;
    for (std::size_t p = 0; p < model.params.size(); ++p) grads.push_back(values(runner.grad(static_cast<int>(p))));
    return grads;
  }
  double largest_distance(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) const {
    double d = 0;
    for (std::size_t p = 0; p < a.size(); ++p)
      for (std::size_t i = 0; i < a[p].size(); ++i) {
        if (!std::isfinite(a[p][i]) || !std::isfinite(b[p][i])) return INFINITY;
        d = std::max(d, std::abs(a[p][i] - b[p][i]));
      }
    return d;
  }

  models::Model model = make_tiny();
  Runner runner{model, shape};
  std::vector<std::int32_t> ids = random_ids(shape, vocab, 1), targets = random_ids(shape, vocab, 2);
  double scale = 1.0 / 14;
};

TEST_F(Gradients, OfEveryModuleAlone) {
  for (std::size_t m = 0; m < model.modules.size(); ++m) runner.check_module(m, shape, ids, targets);
}

TEST_F(Gradients, OfTheFullModel) {
  (void)runner.train(shape, ids, targets, scale);
  EXPECT_EQ(runner.sums.tokens, 14);
  const auto grads = all_grads();
  const auto loss = [&] {
    runner.sums = {};
    (void)runner.evaluate(shape, ids, targets);
    return runner.sums.loss.value() * scale;
  };
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const TensorView& param = runner.param(static_cast<int>(p));
    double largest = 0, error = 0;
    for (std::int64_t i = 0; i < param.numel(); ++i) {
      constexpr double h = 1e-5;
      const double at = get(param, i);
      set(param, i, at + h);
      const double above = loss();
      set(param, i, at - h);
      const double below = loss();
      set(param, i, at);
      largest = std::max(largest, std::abs((above - below) / (2 * h)));
      error = std::max(error, std::abs((above - below) / (2 * h) - grads[p][static_cast<std::size_t>(i)]));
    }
    EXPECT_GT(largest, 0) << model.params[p].name;
    EXPECT_LE(error, 2e-8 * largest + 1e-10) << model.params[p].name;
  }
}

TEST_F(Gradients, PositionsBeyondTheSequenceAreZeroNotLeftOver) {
  (void)runner.train(shape, ids, targets, scale);
  const auto positions = values(runner.grad(runner.index("wpe.weight")));
  for (std::size_t i = 5 * 6; i < 7 * 6; ++i) EXPECT_EQ(positions[i], 0.0);
}

TEST_F(Gradients, TrainingAndEvaluationHaveOneLoss) {
  const double trained = runner.train(shape, ids, targets, scale);
  runner.sums = {};
  EXPECT_NEAR(runner.evaluate(shape, ids, targets), trained, 1e-14);
}

TEST_F(Gradients, MemoryOfTheirOwnForInputGradientsChangesNoBit) {
  (void)runner.train(shape, ids, targets, scale, {.in_place = true});
  const auto in_place = all_grads();
  (void)runner.train(shape, ids, targets, scale, {.in_place = false});
  EXPECT_EQ(in_place, all_grads());
}

TEST_F(Gradients, RecomputedActivationsChangeNoBit) {
  (void)runner.train(shape, ids, targets, scale);
  const auto kept = all_grads();
  for (const bool selective : {false, true}) {
    (void)runner.train(shape, ids, targets, scale, {.recompute = true, .selective = selective});
    EXPECT_EQ(kept, all_grads()) << selective;
  }
}

TEST_F(Gradients, AccumulationAddsParameterByParameter) {
  (void)runner.train(shape, ids, targets, scale);
  const auto once = all_grads();
  for (const int pattern : {0b11, 0b01, 0b10}) {
    Step step;
    auto expected = once;
    for (std::size_t p = 0; p < model.params.size(); ++p) {
      const bool adds = (pattern >> (p % 2)) & 1;
      step.accumulate.push_back(adds);
      for (std::size_t i = 0; i < once[p].size(); ++i) {
        const double before = normal(9 + p, i);
        set(runner.grad(static_cast<int>(p)), static_cast<std::int64_t>(i), before);
        if (adds) expected[p][i] += before;
      }
    }
    (void)runner.train(shape, ids, targets, scale, step);
    EXPECT_LE(largest_distance(all_grads(), expected), 1e-13) << pattern;
  }
}

TEST_F(Gradients, ShortBatchesInTheSameMemoryAddUpToTheLongOne) {
  const double full = runner.train(shape, ids, targets, scale);
  const auto expected = all_grads();
  runner.sums = {};
  double loss = 0;
  std::int64_t first = 0;
  for (const std::int64_t rows : {2, 1}) {
    const auto cut = [&](const std::vector<std::int32_t>& all) {
      return std::vector<std::int32_t>(all.begin() + first * shape.tokens, all.begin() + (first + rows) * shape.tokens);
    };
    Step step;
    step.accumulate.assign(model.params.size(), first > 0);
    loss = runner.train({rows, shape.tokens}, cut(ids), cut(targets), scale, step);
    first += rows;
  }
  EXPECT_NEAR(loss, full, 1e-13);
  EXPECT_LE(largest_distance(all_grads(), expected), 1e-13);
}

TEST_F(Gradients, LogitsAreThoseOfTheLastTokenWhateverTheLength) {
  const auto long_rows = runner.logits(shape, ids);
  EXPECT_EQ(long_rows.size(), static_cast<std::size_t>(3 * vocab));
  // Row 1 alone, and with another last token.
  std::vector<std::int32_t> row(ids.begin() + 5, ids.begin() + 10);
  const auto alone = runner.logits({1, 5}, row);
  for (std::size_t v = 0; v < alone.size(); ++v) EXPECT_NEAR(alone[v], long_rows[vocab + v], 1e-13);
  row.back() = (row.back() + 1) % vocab;
  EXPECT_NE(runner.logits({1, 5}, row), alone);
  // -log softmax of the logits is what evaluation sums
  row = {1, 2, 3};
  const auto logits = runner.logits({1, 3}, row);
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  runner.sums = {};
  const double loss = runner.evaluate({1, 3}, row, {kernels::ignore_index, kernels::ignore_index, 7});
  EXPECT_NEAR(loss, std::log(sum) - logits[7], 1e-12);
}

TEST(Logits, EpsilonOfTheNormIsTheConfigs) {
  constexpr double eps = 0.07;
  constexpr std::int64_t width = 6;
  const models::Model model =
      models::make(R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 7, "n_embd": 6, "n_layer": 1,
                                               "n_head": 2, "layer_norm_epsilon": 0.07})",
                   "epsilon", DType::f64);
  Runner runner(model, {1, 2});
  runner.randomize(8);
  for (const char* name :
       {"h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias", "h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias"}) {
    const TensorView& param = runner.param(runner.index(name));
    for (std::int64_t i = 0; i < param.numel(); ++i) set(param, i, 0);  // the block hands its input on
  }
  const auto of = [&](const char* name, std::int64_t i) { return get(runner.param(runner.index(name)), i); };
  const std::int64_t id = 9;
  double x[width], mean = 0, variance = 0;
  for (std::int64_t i = 0; i < width; ++i)
    mean += (x[i] = of("wte.weight", id * width + i) + of("wpe.weight", width + i)) / width;
  for (const double v : x) variance += (v - mean) * (v - mean) / width;
  const auto logits = runner.logits({1, 2}, {4, static_cast<std::int32_t>(id)});
  for (std::int64_t v = 0; v < vocab; ++v) {
    double expected = 0;
    for (std::int64_t i = 0; i < width; ++i)
      expected += of("wte.weight", v * width + i) *
                  ((x[i] - mean) / std::sqrt(variance + eps) * of("ln_f.weight", i) + of("ln_f.bias", i));
    EXPECT_NEAR(logits[static_cast<std::size_t>(v)], expected, 1e-13);
  }
}

}  // namespace
}  // namespace tessera::test::gradient
