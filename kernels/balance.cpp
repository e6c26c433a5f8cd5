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
