// SPDX-License-Identifier: Apache-2.0
// Checks of the clamped SwiGLU, and its dispatch to host or device.
#include "kernels/clamped_swiglu.hpp"

#include "kernels/cuda/clamped_swiglu.hpp"
#include "kernels/host/clamped_swiglu.hpp"
#include "kernels/operations.hpp"

namespace tessera::kernels {

static void check_gate_up(const TensorView& gate_up, const TensorView& y, const GateLimits& limits) {
  TESSERA_ASSERT(gate_up.numel() == 2 * y.numel() && gate_up.dtype == y.dtype && limits.alpha > 0 && limits.limit > 0,
                 "gate and up %s, y %s", gate_up.shape.str().c_str(), y.shape.str().c_str());
}

void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args, StreamView stream) {
  check_gate_up(args.gate_up, args.y, args.limits);
  TESSERA_DISPATCH(args.y, clamped_swiglu_forward, args);
}

void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args, StreamView stream) {
  check_gate_up(args.gate_up, args.dy, args.limits);
  check_gate_up(args.dgate_up, args.dy, args.limits);
  TESSERA_DISPATCH(args.dy, clamped_swiglu_backward, args);
}

}  // namespace tessera::kernels
