// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/moe.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {
namespace {

void check_choice(const TensorView& probs, const TensorView& experts, const TensorView& weights) {
  TESSERA_ASSERT(probs.shape.rank() == 2 && experts.shape.rank() == 2 && experts.shape[0] == probs.shape[0] &&
                     experts.shape[1] <= probs.shape[1] && weights.shape == experts.shape &&
                     probs.shape[1] <= host::max_experts,
                 "probabilities %s, choices %s", probs.shape.str().c_str(), experts.shape.str().c_str());
}

}  // namespace

void route(const RouteArgs& args, StreamView stream) {
  check_choice(args.probs, args.experts, args.weights);
  TESSERA_ASSERT(args.logits.shape == args.probs.shape);
  TESSERA_DISPATCH(args.probs, route, args);
}

void route_backward(const RouteBackwardArgs& args, StreamView stream) {
  check_choice(args.probs, args.experts, args.weights);
  TESSERA_ASSERT(args.dweights.shape == args.weights.shape && args.dlogits.shape == args.probs.shape);
  TESSERA_DISPATCH(args.probs, route_backward, args);
}

void make_dispatch(const TensorView& experts, const Dispatch& dispatch, StreamView stream) {
  const std::int64_t slots = experts.numel(), count = dispatch.offsets.numel() - 1;
  TESSERA_ASSERT(dispatch.slots.numel() == slots && dispatch.rows.numel() == slots && count > 0);
  TESSERA_DISPATCH(experts, make_dispatch, experts, dispatch);
}

void gather_rows(const TensorView& x, const Dispatch& dispatch, const TensorView& y, StreamView stream) {
  TESSERA_ASSERT(x.shape.rank() == 2 && y.shape.rank() == 2 && x.shape[1] == y.shape[1] &&
                 y.shape[0] == dispatch.slots.numel());
  TESSERA_DISPATCH(x, gather_rows, x, dispatch, y);
}

void combine_rows(const CombineArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x.shape.rank() == 2 && args.y.shape.rank() == 2 && args.x.shape[1] == args.y.shape[1] &&
                 args.x.shape[0] == args.dispatch.rows.numel() &&
                 (!args.weights || args.weights.numel() == args.x.shape[0]));
  TESSERA_DISPATCH(args.x, combine_rows, args);
}

void combine_weights_backward(const CombineWeightsBackwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.a.shape.rank() == 2 && args.a.shape[0] == args.dispatch.slots.numel() &&
                 args.weights.numel() == args.a.shape[0]);
  TESSERA_ASSERT(args.b ? args.a.shape == args.b.shape && args.dweights.numel() == args.a.shape[0] : !args.dweights);
  TESSERA_DISPATCH(args.a, combine_weights_backward, args);
}

}  // namespace tessera::kernels
