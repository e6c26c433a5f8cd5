// SPDX-License-Identifier: Apache-2.0
#include "kernels/balance.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {
namespace {

void check(const BalanceArgs& of) {
  TESSERA_ASSERT(
      of.router.shape.rank() == 3 && of.router.shape[1] == 2 && of.fields.targets && of.loss_scale != nullptr,
      "router %s", of.router.shape.str().c_str());
}

}  // namespace

void count_tokens(const CountTokensArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.fields.targets && args.out.numel() == 2 && args.out.dtype == DType::f64);
  TESSERA_DISPATCH(args.out, count_tokens, args);
}

void sum_statistics(const SumStatisticsArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.parts.shape.rank() == 2 && args.parts.shape[1] == args.sum.numel() &&
                     args.parts.dtype == DType::f64 && args.sum.dtype == DType::f64,
                 "parts %s", args.parts.shape.str().c_str());
  TESSERA_DISPATCH(args.sum, sum_statistics, args);
}

void balance_gradient(const BalanceGradientArgs& args, StreamView stream) {
  check(args.of);
  TESSERA_ASSERT(args.out.numel() == args.of.router.shape[2]);
  TESSERA_DISPATCH(args.out, balance_gradient, args);
}

void add_balance_losses(const BalanceSumsArgs& args, StreamView stream) {
  check(args.of);
  TESSERA_DISPATCH(args.of.router, add_balance_losses, args);
}

}  // namespace tessera::kernels
