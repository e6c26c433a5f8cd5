// SPDX-License-Identifier: Apache-2.0
#pragma once
// SwiGLU and GeGLU (Shazeer 2020): y = f(gate)·up, where f is silu(x) = x·sigmoid(x), or GELU in its tanh form
// (gelu.hpp).

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

enum class GateActivation : unsigned char { silu, gelu };

struct SwigluForwardArgs {
  TensorView gate, up, y;  // one shape; y may be gate or up
  // Elements from row to row of matrices (N, I) that are columns of wider ones; 0: contiguous.
  std::int64_t stride = 0;  // of gate and up
  std::int64_t stride_y = 0;
  GateActivation activation = GateActivation::silu;
};
void swiglu_forward(const SwigluForwardArgs& args, StreamView stream);

struct SwigluBackwardArgs {
  TensorView gate, up;      // the forward's inputs
  TensorView dy;            // contiguous
  TensorView dgate, dup;    // each may be any of the three, if it has the same stride
  std::int64_t stride = 0;  // of gate, up, dgate and dup; as in forward
  GateActivation activation = GateActivation::silu;
};
void swiglu_backward(const SwigluBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels
