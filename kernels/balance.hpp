// SPDX-License-Identifier: Apache-2.0
#pragma once
// The load-balancing loss of mixtures of experts, per micro-batch and over all layers at once, as Hugging Face's: with
// f_e the share of tokens that chose expert e (all K choices counted) and P_e the mean of its probability, E·Σ f_e·P_e;
// it is K at perfect balance. Padding does not count. Computed in double in one order: equal statistics give equal bits
// on host and device.

#include "kernels/padding.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels {

/// Routing statistics of a micro-batch, once all its layers have routed.
struct BalanceArgs {
  TensorView router;   // (layers, 2, E) f64: RouteArgs::counts and sums of each
  TokenFields fields;  // targets present
  /// Pointer to 1 / valid tokens of the global batch: weights the micro-batch by its share of them. With `samples`, to
  /// 1 / samples of the global batch.
  const double* loss_scale = nullptr;
  std::int64_t samples = 0;  // of the micro-batch, where the loss is a mean over these, and not over valid tokens; or 0
  /// (2) f64: CountTokensArgs::out, where several ranks have the micro-batch's tokens; absent: those of `fields`.
  TensorView counted = {};
};

/// Numbers of tokens, of which the sum over ranks that share a micro-batch is the micro-batch's.
struct CountTokensArgs {
  TokenFields fields;  // targets present
  TensorView out;      // (2) f64, written: tokens that are no padding, and valid targets
};
void count_tokens(const CountTokensArgs& args, StreamView stream);

/// The sum of statistics, in the order of the parts.
struct SumStatisticsArgs {
  TensorView parts;  // (parts, N) f64
  TensorView sum;    // (N) f64, written
};
void sum_statistics(const SumStatisticsArgs& args, StreamView stream);

/// d(coefficient·weight·loss)/dP of each token. The choices are constants, so it is the same for all tokens and layers.
struct BalanceGradientArgs {
  BalanceArgs of;
  double coefficient = 0;
  TensorView out;  // (E) f64, written
};
void balance_gradient(const BalanceGradientArgs& args, StreamView stream);

/// Adds the micro-batch's losses times its weight, without the coefficient, as integers in units of `unit`.
struct BalanceSumsArgs {
  BalanceArgs of;
  const double* gradient_scale = nullptr;  // pointer to the factor by which loss_scale was multiplied
  double unit = 1;
  std::int64_t* sums = nullptr;  // (layers + 1), in the router's memory: of all layers together, then of each
};
void add_balance_losses(const BalanceSumsArgs& args, StreamView stream);

/// The loss of one layer, or with layer -1 of all together, over `tokens` routed tokens. `router` as in BalanceArgs,
/// host memory.
[[nodiscard]] double balance_loss(const TensorView& router, std::int64_t tokens, int layer);

}  // namespace tessera::kernels
