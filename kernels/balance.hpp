#pragma once
// The balance loss of mixtures of experts, per micro-batch and over all layers at once, as Hugging Face's: with f_e the
// share of tokens that chose e (all K choices counted) and P_e the mean of its probability, E·Σ f_e·P_e; K at perfect
// balance. Padding does not count. In double and in one order, so that equal statistics give equal bits on host and
// device.

#include "kernels/padding.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels {

/// What is known of a micro-batch when all its layers have chosen.
struct BalanceArgs {
  TensorView router;  // (layers, 2, E) f64: RouteArgs::counts and sums of each
  TokenFields words;  // targets present
  /// 1 / valid tokens of the global batch, in memory: a micro-batch weighs its share of them.
  const double* loss_scale = nullptr;
};

/// d(coefficient·weight·loss)/dP of each token, the same for all tokens and layers, as the choices are constants.
struct BalanceGradientArgs {
  BalanceArgs of;
  double coefficient = 0;
  TensorView out;  // (E) f64, written
};
void balance_gradient(const BalanceGradientArgs& args, StreamView stream);

/// Losses of the micro-batch times its weight, without coefficient, added up as integers.
struct BalanceSumsArgs {
  BalanceArgs of;
  const double* gradient_scale = nullptr;  // in memory: what is in loss_scale besides
  double unit = 1;
  std::int64_t* sums = nullptr;  // layers + 1, of all layers' tokens together, then of each; where router lies
};
void add_balance_losses(const BalanceSumsArgs& args, StreamView stream);

/// Of one layer, or (layer -1) of all together, where `tokens` have chosen. `router` as BalanceArgs', in host memory.
[[nodiscard]] double balance_loss(const TensorView& router, std::int64_t tokens, int layer);

}  // namespace tessera::kernels
