// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gated activation of gpt-oss's experts: with g' = min(g, limit) and u' = u clamped to ±limit,
// y = (u' + 1)·g'·sigmoid(alpha·g'). Gate and up are interleaved, as its files have them. Beyond the limits the
// gradient is 0, at them it is not (torch.clamp).

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct GateLimits {
  double alpha = 1.702, limit = 7;  // both positive
};

struct ClampedSwigluForwardArgs {
  TensorView gate_up;  // (N, 2·I): columns 2i of gate, 2i + 1 of up
  TensorView y;        // (N, I), not over gate_up
  GateLimits limits;
};
void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args, StreamView stream);

struct ClampedSwigluBackwardArgs {
  TensorView gate_up;   // the forward's input
  TensorView dy;        // (N, I)
  TensorView dgate_up;  // (N, 2·I), overwritten; may be gate_up
  GateLimits limits;
};
void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels
