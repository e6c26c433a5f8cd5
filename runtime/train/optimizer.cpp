#include "runtime/train/optimizer.hpp"

#include <cmath>

namespace tessera::train {

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

void AdamW::update(std::span<const shard::UpdateView> pieces, StreamView stream) {
  for (const auto& piece : pieces) {
    const ParamSpec& param = params_[static_cast<std::size_t>(piece.param)];
    if (!param.trainable) continue;
    const Shape n{piece.length};
    kernels::adamw({.param = {piece.master, n, piece.device},
                    .exp_avg = {piece.states[0], n, piece.device},
                    .exp_avg_sq = {piece.states[1], n, piece.device},
                    .grad = {piece.grad, n, piece.device},
                    .scalars = memory_ != nullptr ? memory_ : &scalars_,
                    .decay = param.decay,
                    .copy = piece.copy},
                   stream);
  }
}

}  // namespace tessera::train
