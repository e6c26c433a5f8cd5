// SPDX-License-Identifier: Apache-2.0
// A reference model beside the one that is trained: DPO, against PEFT and PyTorch; strategies agree bit for bit; a
// reference with weights of its own is as good as one that shares them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "models/head.hpp"
#include "models/quantize.hpp"
#include "models/reference.hpp"
#include "runtime/base/at.hpp"
#include "runtime/plan/units.hpp"
#include "tests/models/weighted_loss.hpp"
#include "tests/train/golden_checks.hpp"

namespace tessera::test {
namespace {

/// The log-probability of one target; 0 if it is not valid.
float log_probability(const models::LossArgs& args, std::int64_t token) {
  kernels::LossSums sums;
  models::Batch one{.targets = args.batch->targets.reshape({args.x.shape[0]}).rows(token, 1), .sums = &sums};
  models::cross_entropy()->compute(
      {.shape = {1, 1}, .x = args.x.rows(token, 1), .weight = args.weight, .batch = &one, .workspace = args.workspace});
  return static_cast<float>(-sums.loss.value());
}

class CrossEntropyMemory : public models::Loss {
 public:
  [[nodiscard]] std::size_t workspace_bytes(models::BatchShape of, std::int64_t vocab, DType dtype) const override {
    return models::cross_entropy()->workspace_bytes(of, vocab, dtype);
  }
};

/// Of a reference model: leaves the log-probability of every target.
class ReferenceLoss final : public CrossEntropyMemory {
 public:
  void compute(const models::LossArgs& args) const override {
    EXPECT_EQ(args.batch->sums, nullptr);
    for (std::int64_t t = 0; t < args.x.shape[0]; ++t) args.batch->reference.as<float>()[t] = log_probability(args, t);
  }
};

/// The mean over pairs of rows of -log σ(β·((p₀ - r₀) - (p₁ - r₁))): p the log-probability of a row's targets, r the
/// reference's. Every target is valid, and the run divides by their number.
class DpoLoss final : public CrossEntropyMemory {
 public:
  explicit DpoLoss(double beta) : beta_(beta) {}
  void compute(const models::LossArgs& args) const override {
    const models::Batch& batch = *args.batch;
    const std::int64_t n = args.shape.tokens, of_pair = 2 * n;
    std::vector<float> weights(static_cast<std::size_t>(args.x.shape[0]));
    for (std::int64_t first = 0; first < args.x.shape[0]; first += of_pair) {
      double margin = 0;
      for (std::int64_t t = first; t < first + of_pair; ++t)
        margin += (t < first + n ? beta_ : -beta_) * (log_probability(args, t) - batch.reference.as<float>()[t]);
      batch.sums->loss.add(std::log1p(std::exp(-margin)));
      batch.sums->tokens += 1;
      batch.sums->correct += margin > 0 ? 1 : 0;
      const double slope = beta_ / (1 + std::exp(margin)) * static_cast<double>(of_pair);
      for (std::int64_t t = first; t < first + of_pair; ++t)
        weights[at(static_cast<int>(t))] = static_cast<float>(t < first + n ? slope : -slope);
    }
    if (!args.dx && !args.dweight) return;
    weighted_cross_entropy(args, weights);
  }

 private:
  double beta_;
};

/// Gives the model the loss, and `base`, the same without adapters, as its reference.
void train_on_pairs(models::Model& model, models::Model base, double beta, models::ReferenceParams params) {
  dynamic_cast<models::Head&>(*model.modules.back()).set_loss(std::make_shared<DpoLoss>(beta));
  dynamic_cast<models::Head&>(*base.modules.back()).set_loss(std::make_shared<ReferenceLoss>());
  models::add_reference(model, std::move(base), params);
}

TEST(Reference, TenStepsOfDpo) {
  Golden golden = load_dpo_golden("tiny");
  train_on_pairs(golden.model, load_golden("tiny").model, golden.expected["beta"], models::ReferenceParams::shared);
  expect_golden_of_every_strategy(golden);
}

/// Copies the units of the base to those of a reference with parameters of its own.
void copy_base(train::Trainer& trainer) {
  const auto& layout = trainer.plan().layout;
  const std::vector<io::ShardView> shards = trainer.shards(), references = trainer.reference_shards();
  int copied = 0;
  for (const io::ShardView& to : references)
    for (const io::ShardView& from : shards) {
      if (layout.unit_name(to.unit) != models::reference_prefix + layout.unit_name(from.unit)) continue;
      ASSERT_EQ(to.data.nbytes(), from.data.nbytes());
      std::memcpy(to.data.data, from.data.data, to.data.nbytes());
      ++copied;
    }
  EXPECT_EQ(copied, 5);  // embed, three blocks, head
}

/// Losses and norms of three steps, then the loss of an evaluation.
std::vector<double> curve_of(const models::Model& model, const Variant& v) {
  std::vector<double> curve;
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(io::count_samples(tokens, v.tokens).samples, true, 11);
  run_local(
      v.world,
      [&](World& world) {
        train::Trainer trainer(world, options_of(model, v, 3));
        trainer.initialize();
        if (model.lora && model.reference_params > 0) copy_base(trainer);
        trainer.parameters_changed();
        std::vector<double> mine;
        for (int s = 0; s < 3; ++s) {
          const auto report = trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
          mine.insert(mine.end(), {report.loss, report.grad_norm});
        }
        mine.push_back(trainer.evaluate(tokens, 8).loss);
        EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()), "") << v.str();
        EXPECT_EQ(trainer.arena().broken_canary(), "") << v.str();
        if (world.rank() == 0) curve = mine;
      },
      v.copies);
  return curve;
}

TEST(Reference, WeightsOfItsOwnAreAsGoodAsSharedOnes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto make = [&](models::ReferenceParams params) {
      models::Model model = models::make(config_json({.layers = 3}), "test", dtype);
      models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.2});
      train_on_pairs(model, models::make(config_json({.layers = 3}), "test", dtype), 0.3, params);
      return model;
    };
    const models::Model shared = make(models::ReferenceParams::shared), own = make(models::ReferenceParams::own);
    EXPECT_GT(own.params.size(), shared.params.size());
    EXPECT_EQ(own.train_flops_per_token(9), shared.train_flops_per_token(9));
    std::vector<double> first;
    for (const char* strategy : {"0", "2", "3"})
      for (const models::Model* model : {&shared, &own}) {
        const Variant v{.world = 2,
                        .strategy = strategy,
                        .global_batch = 8,
                        .micro_batch = 2,
                        .recompute = strategy[0] == '2',
                        .copies = strategy[0] == '3',
                        .dtype = dtype};
        const std::vector<double> curve = curve_of(*model, v);
        ASSERT_EQ(curve.size(), 7U);
        EXPECT_NEAR(curve[0], std::log(2.0), 1e-12);  // adapters begin at 0: the two models are one
        EXPECT_NE(curve[4], curve[0]);
        if (first.empty()) first = curve;
        EXPECT_EQ(curve, first) << v.str();
      }
  }
}

/// A wider one of another family, in floats or quantized, resident, offloaded, and beside offloaded activations; and
/// one that is narrower than the model.
TEST(Reference, OfAnotherSizeAgreesAtEveryStage) {
  const std::string small = config_json({.layers = 3, .hidden = 12}), wide = qwen3_config;
  for (const auto& [config, other, format] : {std::tuple{small, wide, QuantFormat::none},
                                              {small, wide, QuantFormat::nf4},
                                              {small, wide, QuantFormat::int8},
                                              {wide, small, QuantFormat::none}}) {
    models::Model model = models::make(config, "test"), reference = models::make(other, "test");
    const std::int64_t hidden = reference.hidden;
    if (format != QuantFormat::none) models::quantize(reference, format);
    train_on_pairs(model, std::move(reference), 0.3, models::ReferenceParams::own);
    EXPECT_EQ(model.reference_hidden, hidden);
    std::vector<double> first;
    for (const int world : {2, 3})
      for (const char* strategy : {"0", "1", "2", "3"})
        for (const bool offloaded : {false, true}) {
          Variant v{.world = world,
                    .strategy = strategy,
                    .global_batch = 12,
                    .micro_batch = 2,
                    .recompute = strategy[0] == '2',
                    .copies = strategy[0] == '3' && !offloaded,
                    .offload_activations = offloaded};
          if (offloaded && strategy[0] == '3') v.placement = {shard::Tier::host, shard::Tier::host, shard::Tier::host};
          const std::vector<double> curve = curve_of(model, v);
          ASSERT_EQ(curve.size(), 7U);
          EXPECT_TRUE(std::isfinite(curve[6]));
          if (first.empty()) first = curve;
          if (world == 2) { EXPECT_EQ(curve, first) << v.str(); }
          for (std::size_t i = 0; i < curve.size(); ++i) EXPECT_NEAR(curve[i], first[i], 1e-5) << v.str();
        }
  }
}

TEST(Reference, FlopsAreThoseOfItsForward) {
  models::Model model = models::make(config_json({}), "test");
  const double alone = model.train_flops_per_token(9);
  double forward = 0;
  for (const auto& module : model.modules) forward += module->forward_flops({1, 9}) / 9;
  models::add_reference(model, models::make(config_json({}), "test"), models::ReferenceParams::own);
  EXPECT_NEAR(model.train_flops_per_token(9), alone + forward, 1e-9 * alone);
}

TEST(Reference, OfAnotherArchitectureIsRefused) {
  models::Model model = models::make(config_json({}), "test");
  const auto refused = [&](models::Model other, models::ReferenceParams params) {
    try {
      models::add_reference(model, std::move(other), params);
    } catch (const Error& error) { return error.line(); }
    return std::string();
  };
  EXPECT_NE(refused(models::make(config_json({.vocab = 41}), "test"), models::ReferenceParams::own).find("vocabulary"),
            std::string::npos);
  EXPECT_NE(refused(models::make(config_json({.layers = 3}), "test"), models::ReferenceParams::shared).find("h.2."),
            std::string::npos);
  EXPECT_NE(refused(models::make(config_json({}), "test", DType::bf16), models::ReferenceParams::own).find("bf16"),
            std::string::npos);
}

TEST(Reference, ModulesHaveTheirOwnNamesInASchedule) {
  for (const models::ReferenceParams params : {models::ReferenceParams::shared, models::ReferenceParams::own}) {
    models::Model model = models::make(config_json({}), "test");
    models::add_reference(model, models::make(config_json({}), "test"), params);
    const auto references = plan::references(model, plan::make_units(model, {}), Mesh(1, 1));
    ASSERT_EQ(references.size(), 1U);
    ASSERT_EQ(references[0].modules.size(), model.modules.size());
    for (std::size_t m = 0; m < model.modules.size(); ++m)
      EXPECT_EQ(references[0].modules[m].name, model.modules[m]->name());
  }
}

}  // namespace
}  // namespace tessera::test
