// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/optimizers.hpp"

#include <cmath>

#include "kernels/adamw_8bit.hpp"
#include "kernels/sgd.hpp"

namespace tessera::train {

namespace {

/// What optimizers that work element by element, or block by block, have in common.
class ElementOptimizer : public exec::Optimizer {
 public:
  ElementOptimizer(const OptimizerOptions& options, std::span<const ParamSpec> params)
      : options_(options), params_(params), rates_(options.rates) {
    if (rates_.empty())
      for (const ParamSpec& param : params) rates_.push_back({.weight_decay = param.decay ? options.weight_decay : 0});
    TESSERA_ASSERT(rates_.size() == params.size(), "rates of %zu parameters, the model has %zu", rates_.size(),
                   params.size());
    segments_.reserve(params.size());
  }

 protected:
  [[nodiscard]] const OptimizerOptions& options() const { return options_; }
  /// What every kernel takes. The segments are valid until the next call.
  [[nodiscard]] kernels::UpdateArgs update_args(const shard::UpdateView& shard, const kernels::StepScalars* step) {
    segments_.clear();
    for (const auto& range : shard.ranges) {
      if (!params_[static_cast<std::size_t>(range.param)].trainable) continue;
      const std::int64_t end = range.begin + range.length;
      const ParamRates& rates = rates_[static_cast<std::size_t>(range.param)];
      const bool goes_on = !segments_.empty() && segments_.back().end == range.begin &&
                           rates == ParamRates{segments_.back().lr_factor, segments_.back().weight_decay};
      if (goes_on) segments_.back().end = end;
      else segments_.push_back({range.begin, end, rates.lr_factor, rates.weight_decay});
    }
    const Shape n{shard.numel};
    return {.param = {shard.master, n, shard.device},
            .grad = {shard.grad, n, shard.device},
            .decision = &step->decision,
            .segments = segments_,
            .copy = shard.low_precision};
  }

 private:
  OptimizerOptions options_;
  std::span<const ParamSpec> params_;
  std::vector<ParamRates> rates_;                 // of each parameter
  std::vector<kernels::UpdateSegment> segments_;  // of the current shard
};

class AnyAdamW : public ElementOptimizer {
 public:
  using ElementOptimizer::ElementOptimizer;

  [[nodiscard]] kernels::OptimizerScalars scalars(std::int64_t update, double learning_rate) const override {
    const auto t = static_cast<double>(update);
    return kernels::OptimizerScalars(
        kernels::AdamWScalars{.learning_rate = learning_rate,
                              .beta1 = options().beta1,
                              .beta2 = options().beta2,
                              .eps = options().eps,
                              .bias_correction1 = 1.0 - std::pow(options().beta1, t),
                              .sqrt_bias_correction2 = std::sqrt(1.0 - std::pow(options().beta2, t))});
  }
};

class AdamW final : public AnyAdamW {
 public:
  using AnyAdamW::AnyAdamW;

  void update(const shard::UpdateView& shard, const kernels::StepScalars* step, StreamView stream) override {
    kernels::adamw({.update = update_args(shard, step),
                    .exp_avg = shard.states[0],
                    .exp_avg_sq = shard.states[1],
                    .scalars = step->optimizer.as<kernels::AdamWScalars>()},
                   stream);
  }
};

/// Its blocks begin where parameters do, and the layout keeps them in one shard.
class AdamW8Bit final : public AnyAdamW {
 public:
  using AnyAdamW::AnyAdamW;

  void update(const shard::UpdateView& shard, const kernels::StepScalars* step, StreamView stream) override {
    kernels::adamw_8bit({.update = update_args(shard, step),
                         .exp_avg = {shard.states[0], shard.states[1]},
                         .exp_avg_sq = {shard.states[2], shard.states[3]},
                         .scalars = step->optimizer.as<kernels::AdamWScalars>()},
                        stream);
  }
};

class Sgd final : public ElementOptimizer {
 public:
  using ElementOptimizer::ElementOptimizer;

  [[nodiscard]] kernels::OptimizerScalars scalars(std::int64_t /*update*/, double learning_rate) const override {
    return kernels::OptimizerScalars(kernels::SgdScalars{
        .learning_rate = learning_rate, .momentum = options().momentum, .nesterov = options().nesterov ? 1 : 0});
  }
  void update(const shard::UpdateView& shard, const kernels::StepScalars* step, StreamView stream) override {
    kernels::sgd({.update = update_args(shard, step),
                  .momentum_buffer = shard.states.empty() ? TensorView() : shard.states[0],
                  .scalars = step->optimizer.as<kernels::SgdScalars>()},
                 stream);
  }
};

}  // namespace

const char* name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw: return "adamw";
    case OptimizerKind::adamw_8bit: return "adamw_8bit";
    case OptimizerKind::sgd: return "sgd";
  }
  return "";
}

std::vector<StateSpec> optimizer_states(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::adamw: return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
    case OptimizerKind::adamw_8bit: {
      constexpr std::int64_t block = kernels::quantization_block;
      return {{.name = "exp_avg_8bit", .dtype = DType::u8},
              {.name = "exp_avg_absmax", .block = block},
              {.name = "exp_avg_sq_8bit", .dtype = DType::u8},
              {.name = "exp_avg_sq_absmax", .block = block}};
    }
    case OptimizerKind::sgd:
      if (options.momentum == 0) return {};
      return {{.name = "momentum_buffer"}};
  }
  return {};
}

std::string text_of(const OptimizerOptions& options) {
  const std::string own = options.kind == OptimizerKind::sgd
                              ? strfmt("momentum %a nesterov %d", options.momentum, options.nesterov ? 1 : 0)
                              : strfmt("beta1 %a beta2 %a eps %a", options.beta1, options.beta2, options.eps);
  std::string text = std::string(name_of(options.kind)) + " " + own + strfmt(" weight decay %a", options.weight_decay);
  for (const ParamRates& rates : options.rates) text += strfmt(" %a/%a", rates.lr_factor, rates.weight_decay);
  return text;
}

std::unique_ptr<exec::Optimizer> make_optimizer(const OptimizerOptions& options, std::span<const ParamSpec> params) {
  if (options.kind == OptimizerKind::sgd) return std::make_unique<Sgd>(options, params);
  if (options.kind == OptimizerKind::adamw_8bit) return std::make_unique<AdamW8Bit>(options, params);
  return std::make_unique<AdamW>(options, params);
}

}  // namespace tessera::train
