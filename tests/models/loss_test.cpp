// SPDX-License-Identifier: Apache-2.0
// A head with another loss: of pairs of rows, through their log-probabilities.
#include <gtest/gtest.h>

#include <cmath>

#include "models/head.hpp"
#include "runner.hpp"
#include "runtime/base/rng.hpp"
#include "weighted_loss.hpp"

namespace tessera::test::loss {
namespace {

using models::BatchShape;

constexpr BatchShape shape{4, 5};
constexpr std::int32_t vocab = 11;
constexpr double beta = 0.7;

/// -log σ(β·(log p(row 2k) - log p(row 2k + 1))) of each pair of rows, a log-probability being summed over the targets.
/// Its gradient is that of cross-entropy with weights.
class PairLoss final : public models::Loss {
 public:
  void compute(const models::LossArgs& args) const override {
    const models::Batch& batch = *args.batch;
    std::vector<float> weights(static_cast<std::size_t>(args.shape.batch * args.shape.tokens));
    for (std::int64_t row = 0; row < args.shape.batch; row += 2) {
      const double margin = beta * (log_probability(args, row) - log_probability(args, row + 1));
      const double slope = beta / (1 + std::exp(margin));
      batch.sums->loss.add(std::log1p(std::exp(-margin)));
      batch.sums->tokens += 1;
      batch.sums->correct += margin > 0 ? 1 : 0;
      for (std::int64_t t = 0; t < 2 * args.shape.tokens; ++t)
        weights[static_cast<std::size_t>(row * args.shape.tokens + t)] =
            static_cast<float>(t < args.shape.tokens ? slope : -slope);
    }
    if (!args.dx && !args.dweight) return;
    weighted_cross_entropy(args, weights);
  }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape of, std::int64_t size, DType dtype) const override {
    return models::cross_entropy()->workspace_bytes(of, size, dtype);
  }

 private:
  static double log_probability(const models::LossArgs& args, std::int64_t row) {
    kernels::LossSums sums;
    const std::int64_t n = args.shape.tokens;
    models::Batch one{.targets = args.batch->targets.rows(row, 1), .sums = &sums};
    models::cross_entropy()->compute({.shape = {1, n},
                                      .x = args.x.rows(row * n, n),
                                      .weight = args.weight,
                                      .batch = &one,
                                      .workspace = args.workspace});
    return -sums.loss.value();
  }
};

std::vector<std::int32_t> some_ids(std::uint64_t key) {
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(shape.batch * shape.tokens); ++i)
    ids.push_back(static_cast<std::int32_t>(uniform(key, i) * vocab));
  return ids;
}

TEST(HeadLoss, AnotherLossNeedsNoOtherHead) {
  models::Model model = models::make(
      R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 7, "n_embd": 6, "n_layer": 1, "n_head": 2, "n_inner": 10})",
      "tiny", DType::f64);
  dynamic_cast<models::Head&>(*model.modules.back()).set_loss(std::make_shared<PairLoss>());
  Runner runner(model, shape);
  runner.randomize(3);
  const std::vector<std::int32_t> ids = some_ids(1);
  std::vector<std::int32_t> targets = some_ids(2);
  targets[4] = targets[5] = kernels::ignore_index;
  const double scale = 0.5;  // 1 / pairs
  const double trained = runner.train(shape, ids, targets, scale);
  EXPECT_EQ(runner.sums.tokens, 2);
  const auto loss = [&] {
    runner.sums = {};
    (void)runner.evaluate(shape, ids, targets);
    return runner.sums.loss.value() * scale;
  };
  EXPECT_EQ(loss(), trained);
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const std::vector<double> grad = values(runner.grad(static_cast<int>(p)));
    const TensorView& param = runner.param(static_cast<int>(p));
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < grad.size(); ++i) {
      constexpr double h = 1e-5;
      const double at = get(param, static_cast<std::int64_t>(i));
      set(param, static_cast<std::int64_t>(i), at + h);
      const double above = loss();
      set(param, static_cast<std::int64_t>(i), at - h);
      const double below = loss();
      set(param, static_cast<std::int64_t>(i), at);
      largest = std::max(largest, std::abs(grad[i]));
      error = std::max(error, std::abs(grad[i] - (above - below) / (2 * h)));
    }
    EXPECT_LE(error, 2e-7 * (1 + largest)) << model.params[p].name;  // weights are fp32
  }
}

}  // namespace
}  // namespace tessera::test::loss
