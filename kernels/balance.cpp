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
  if constexpr (cuda_built)
    if (is_on_cuda(args.out)) return cuda::balance_gradient(args, stream);
  host::balance_gradient(args);
}

void add_balance_losses(const BalanceSumsArgs& args, StreamView stream) {
  check(args.of);
  if constexpr (cuda_built)
    if (is_on_cuda(args.of.router)) return cuda::add_balance_losses(args, stream);
  host::add_balance_losses(args);
}

}  // namespace tessera::kernels
