#include "runtime/train/optimizer.hpp"

#include <cmath>

namespace tessera::train {

std::vector<StateSpec> adamw_states() { return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}}; }

void AdamW::begin(std::int64_t step, double learning_rate) {
  const auto t = static_cast<double>(step);
  scalars_.learning_rate = learning_rate;
  scalars_.beta1 = options_.beta1;
  scalars_.beta2 = options_.beta2;
  scalars_.eps = options_.eps;
  scalars_.weight_decay = options_.weight_decay;
  scalars_.bias_correction1 = 1.0 - std::pow(options_.beta1, t);
  scalars_.sqrt_bias_correction2 = std::sqrt(1.0 - std::pow(options_.beta2, t));
}

void AdamW::update(const shard::UpdateView& shard, StreamView stream) {
  segments_.clear();
  for (const auto& range : shard.ranges) {
    const ParamSpec& param = params_[static_cast<std::size_t>(range.param)];
    if (!param.trainable) continue;
    const std::int64_t end = range.begin + range.length;
    const bool goes_on =
        !segments_.empty() && segments_.back().end == range.begin && segments_.back().decay == param.decay;
    if (goes_on) segments_.back().end = end;
    else segments_.push_back({range.begin, end, param.decay});
  }
  const Shape n{shard.numel};
  kernels::adamw({.param = {shard.master, n, shard.device},
                  .exp_avg = shard.states[0],
                  .exp_avg_sq = shard.states[1],
                  .grad = {shard.grad, n, shard.device},
                  .scalars = memory_ != nullptr ? memory_ : &scalars_,
                  .segments = segments_,
                  .copy = shard.low_precision},
                 stream);
}

}  // namespace tessera::train
