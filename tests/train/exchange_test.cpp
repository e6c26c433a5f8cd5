// SPDX-License-Identifier: Apache-2.0
// A module with stages, between which ranks exchange activations: y = x + w · mean of x over the rows of all ranks.
// Three ways to the mean: rows are gathered; channels are sent to the rank that has them, and the means back
// (all-to-all); or each rank's sum is added. On two ranks of one row they add the same numbers in the same order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

enum class Way : unsigned char { gather, swap, sum };

class MixRows final : public models::Module {
 public:
  MixRows(Way way, int ranks, std::int64_t channels, std::vector<ParamSpec>& params)
      : way_(way), ranks_(ranks), channels_(channels), param_{static_cast<int>(params.size())} {
    params.push_back({.name = "mix.weight", .shape = {channels}, .init = {Initializer::Kind::normal, 0.5}});
  }
  std::string name() const override { return "mix"; }
  std::span<const int> params() const override { return param_; }
  std::size_t saved_bytes(models::BatchShape, DType) const override { return 0; }
  std::size_t workspace_bytes(models::BatchShape, DType, models::Phase) const override { return 0; }
  double forward_flops(models::BatchShape shape) const override { return 3.0 * static_cast<double>(numel(shape)); }

  models::ModuleStages stages(models::Phase /*phase*/) const override {
    using enum ExchangeKind;
    constexpr auto data = models::RankGroup::data;
    if (way_ == Way::gather)
      return {.values = {{"own", false}, {"all", true}},
              .stages = {{{}, {0}}, {{1}, {}}},
              .exchanges = {{{0, 0, 1, all_gather, reduce_scatter}, data}}};
    if (way_ == Way::sum)
      return {.values = {{"own", false}, {"all", true}},
              .stages = {{{}, {0}}, {{1}, {}}},
              .exchanges = {{{0, 0, 1, all_reduce, all_reduce}, data}}};
    return {.values = {{"own", false}, {"channels", false}, {"means", false}, {"mean", true}},
            .stages = {{{}, {0}}, {{1}, {2}}, {{3}, {}}},
            .exchanges = {{{0, 0, 1, all_to_all, all_to_all}, data}, {{1, 2, 3, all_to_all, all_to_all}, data}}};
  }
  std::size_t value_bytes(int value, models::BatchShape shape, DType) const override {
    const std::int64_t rows = way_ == Way::sum                    ? 1
                              : way_ == Way::gather && value == 1 ? ranks_ * shape.batch
                                                                  : shape.batch;
    return static_cast<std::size_t>(rows * shape.tokens * channels_) * sizeof(float);
  }

  void forward(const models::ForwardArgs& args) const override {
    const std::int64_t b = args.shape.batch, row = args.shape.tokens * channels_;
    const auto *x = args.x.as<float>(), *w = args.params[0].as<float>();
    const auto value = [&](std::size_t v) { return static_cast<float*>(args.values[v].data); };
    if (args.stage == 0 && way_ == Way::gather) return copy(x, value(0), b * row);
    if (args.stage == 0 && way_ == Way::sum) return add_rows(x, b, row, value(0));
    if (args.stage == 0) return by_channels(args.shape, x, value(0));
    if (args.stage == 1 && way_ == Way::swap) return broadcast_mean(args.shape, value(1), value(2));
    for (std::int64_t i = 0; i < b * row; ++i)
      args.y.as<float>()[i] = x[i] + w[i % channels_] * mean(args.values, args.shape, i);
  }

  void backward(const models::BackwardArgs& args) const override {
    const std::int64_t b = args.shape.batch, row = args.shape.tokens * channels_;
    const auto *dy = args.dy.as<float>(), *w = args.params[0].as<float>();
    const auto gradient = [&](std::size_t v) { return static_cast<float*>(args.value_gradients[v].data); };
    const int last = way_ == Way::swap ? 2 : 1;
    if (args.stage == last) {
      auto* const dw = args.dparams[0].as<float>();
      for (std::int64_t c = 0; c < channels_ && args.accumulate[0] == 0; ++c) dw[c] = 0;
      for (std::int64_t i = 0; i < b * row; ++i) dw[i % channels_] += dy[i] * mean(args.values, args.shape, i);
    }
    // The gradient of each row's part of the mean: w · dy / rows.
    std::vector<float> scaled(static_cast<std::size_t>(b * row)), summed(static_cast<std::size_t>(row));
    for (std::int64_t i = 0; i < b * row; ++i)
      scaled[static_cast<std::size_t>(i)] = w[i % channels_] * dy[i] / static_cast<float>(ranks_ * b);
    add_rows(scaled.data(), b, row, summed.data());
    if (args.stage == last && way_ == Way::gather)
      for (std::int64_t r = 0; r < ranks_ * b; ++r) copy(summed.data(), gradient(1) + r * row, row);
    if (args.stage == last && way_ == Way::sum) copy(summed.data(), gradient(1), row);
    if (args.stage == last && way_ == Way::swap) by_channels(args.shape, scaled.data(), gradient(3));
    if (args.stage == 1 && way_ == Way::swap) {  // every row of a rank's channels has the sum over rows
      const std::int64_t part = b * row / ranks_;
      for (std::int64_t k = 0; k < part / b; ++k) {
        float sum = 0;
        for (std::int64_t r = 0; r < ranks_ * b; ++r) sum += gradient(2)[r / b * part + r % b * (part / b) + k];
        for (std::int64_t r = 0; r < ranks_ * b; ++r) gradient(1)[r / b * part + r % b * (part / b) + k] = sum;
      }
    }
    if (args.stage > 0 || !args.dx) return;
    for (std::int64_t i = 0; i < b * row; ++i) {
      const float through = way_ == Way::gather ? gradient(0)[i]
                            : way_ == Way::sum  ? gradient(0)[i % row]
                                                : gradient(0)[channel_place(args.shape, i)];
      args.dx.as<float>()[i] = dy[i] + through;
    }
  }

 private:
  [[nodiscard]] std::int64_t numel(models::BatchShape shape) const { return shape.batch * shape.tokens * channels_; }
  static void copy(const float* from, float* to, std::int64_t n) { std::copy_n(from, n, to); }
  static void add_rows(const float* x, std::int64_t rows, std::int64_t row, float* sum) {
    for (std::int64_t k = 0; k < row; ++k) {
      sum[k] = 0;
      for (std::int64_t r = 0; r < rows; ++r) sum[k] += x[r * row + k];
    }
  }
  /// Where element i of (B, T, C) lies in (ranks, B, T, C / ranks).
  [[nodiscard]] std::int64_t channel_place(models::BatchShape shape, std::int64_t i) const {
    const std::int64_t width = channels_ / ranks_, c = i % channels_, token = i / channels_;
    return c / width * (shape.batch * shape.tokens * width) + token * width + c % width;
  }
  void by_channels(models::BatchShape shape, const float* x, float* to) const {
    for (std::int64_t i = 0; i < numel(shape); ++i) to[channel_place(shape, i)] = x[i];
  }
  /// (ranks, B, T, C / ranks) of all rows → their mean, for each row.
  void broadcast_mean(models::BatchShape shape, const float* all, float* to) const {
    const std::int64_t row = shape.tokens * channels_ / ranks_, rows = ranks_ * shape.batch;
    std::vector<float> sum(static_cast<std::size_t>(row));
    add_rows(all, rows, row, sum.data());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < row; ++k)
        to[r * row + k] = sum[static_cast<std::size_t>(k)] / static_cast<float>(rows);
  }
  /// The mean at element i of this rank's rows.
  [[nodiscard]] float mean(std::span<const TensorView> values, models::BatchShape shape, std::int64_t i) const {
    const std::int64_t row = shape.tokens * channels_, rows = ranks_ * shape.batch;
    const auto* const all = static_cast<const float*>(values[way_ == Way::swap ? 3 : 1].data);
    if (way_ == Way::swap) return all[channel_place(shape, i)];
    float sum = 0;
    for (std::int64_t r = 0; r < (way_ == Way::gather ? rows : 1); ++r) sum += all[r * row + i % row];
    return sum / static_cast<float>(rows);
  }

  Way way_;
  int ranks_;
  std::int64_t channels_;
  std::vector<int> param_;
};

/// GPT-2 with the module after its first block.
models::Model mixing_model(Way way, int ranks) {
  models::Model model = models::make(config_json({}), "test");
  auto mix = std::make_unique<MixRows>(way, ranks, model.hidden, model.params);
  model.modules.insert(model.modules.begin() + 2, std::move(mix));
  return model;
}

Outcome outcome(Way way, const Variant& v) {
  static const RandomTokens tokens(400, 37);
  const models::Model model = mixing_model(way, v.world);
  const auto counted = [](train::Trainer& trainer) {
    EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()), "");
  };
  return run({&model, &tokens, 3, "", /*evaluate=*/false, counted}, v);
}

double largest(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

TEST(Exchange, TwoRanksAreOneRankWithTheirRows) {
  for (const Way way : {Way::gather, Way::swap, Way::sum}) {
    const Outcome one = outcome(way, {.world = 1, .global_batch = 4, .micro_batch = 2}),
                  two = outcome(way, {.world = 2, .global_batch = 4, .micro_batch = 1});
    for (std::size_t s = 0; s < one.losses.size(); ++s) EXPECT_NEAR(one.losses[s], two.losses[s], 1e-6);
    EXPECT_LT(largest(one.grads, two.grads), 1e-6);
    EXPECT_LT(largest(one.params, two.params), 1e-5);
  }
}

TEST(Exchange, TheKindOfExchangeAndTheStrategyChangeNoBit) {
  const Outcome first = outcome(Way::gather, {.world = 2, .strategy = "0", .global_batch = 4});
  for (const Way way : {Way::gather, Way::swap, Way::sum})
    for (const char* strategy : {"0", "2", "3"})
      EXPECT_EQ(difference(first, outcome(way, {.world = 2, .strategy = strategy, .global_batch = 4})), "") << strategy;
  for (const Way way : {Way::gather, Way::swap, Way::sum}) {
    Variant v{.world = 2, .global_batch = 4, .recompute = true, .copies = true};
    EXPECT_EQ(difference(first, outcome(way, v)), "");
    v.recompute = v.copies = false;
    v.offload_activations = true;
    v.streams = Stream::Mode::deferred;
    EXPECT_EQ(difference(first, outcome(way, v)), "");
  }
}

TEST(Exchange, OnSeveralAxesBytesAreThosePlanned) {
  static const RandomTokens tokens(400, 37);
  for (const bool copies : {false, true})
    for (const Way way : {Way::gather, Way::swap, Way::sum}) {
      const models::Model model = mixing_model(way, 4);
      const Variant v{
          .world = 4, .strategy = "HYBRID_SHARD", .group = 2, .global_batch = 8, .copies = copies, .ranks_per_node = 2};
      std::vector<TrafficCount> before(4);
      const auto counted = [&](train::Trainer& trainer) {
        const plan::RunPlan& plan = trainer.plan();
        const AxisSet axes = Axis::replicate | Axis::shard;
        const int group = plan.groups.exchange_index_of(axes);
        ASSERT_GE(group, 0);
        TrafficCount sum = before[static_cast<std::size_t>(trainer.world().rank())];
        sum += plan.costs.traffic[static_cast<std::size_t>(group)];
        EXPECT_EQ(trainer.exchange_traffic(axes), sum) << copies << static_cast<int>(way);
        EXPECT_GT(sum.within_node + sum.across_nodes, 0u);
        before[static_cast<std::size_t>(trainer.world().rank())] = trainer.exchange_traffic(axes);
        EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "");
      };
      (void)run({&model, &tokens, 2, "", /*evaluate=*/false, counted}, v);
    }
}

/// The gradient that an exchange has summed is fp32, and the module says that it has the type of activations.
TEST(Exchange, OfAWrongSizeIsRefused) {
  models::Model model = mixing_model(Way::sum, 2);
  model.dtype = DType::bf16;
  const Variant v{.world = 2, .global_batch = 2, .dtype = DType::bf16};
  run_local(2, [&](World& world) {
    EXPECT_THAT([&] { train::Trainer trainer(world, options_of(model, v, 1)); },
                testing::ThrowsMessage<std::logic_error>(testing::HasSubstr("and all_reduce makes")));
  });
}

TEST(Exchange, IsInTheTrace) {
  static const RandomTokens tokens(400, 37);
  const models::Model model = mixing_model(Way::swap, 2);
  std::vector<std::string> names;
  run_local(2, [&](World& world) {
    train::Trainer trainer(world, options_of(model, {.world = 2, .global_batch = 2}, 2));
    trainer.initialize();
    trainer.start_trace(1);
    (void)trainer.step(tokens, io::Sampler(40, true, 1), 0, 2);
    for (const exec::TraceSpan& span : trainer.take_trace())
      if (world.rank() == 0 && span.lane == static_cast<int>(shard::StreamId::exchange)) names.push_back(span.name);
  });
  EXPECT_EQ(names, (std::vector<std::string>{"exchange mix:channels m0", "exchange mix:mean m0",
                                             "exchange mix:d means m0", "exchange mix:d own m0"}));
}

}  // namespace
}  // namespace tessera::test
