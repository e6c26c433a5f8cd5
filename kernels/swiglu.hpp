// SPDX-License-Identifier: Apache-2.0
#pragma once
// SwiGLU (Shazeer 2020): y = silu(gate)·up, silu(x) = x·sigmoid(x).

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct SwigluForwardArgs {
  TensorView gate, up, y;  // one shape; y may be gate or up
};
void swiglu_forward(const SwigluForwardArgs& args, StreamView stream);

struct SwigluBackwardArgs {
  TensorView gate, up;  // the forward's inputs
  TensorView dy;
  TensorView dgate, dup;  // either may be dy
};
void swiglu_backward(const SwigluBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels
