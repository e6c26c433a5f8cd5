// SPDX-License-Identifier: Apache-2.0
#pragma once
// GELU, the tanh form ("gelu_new" of GPT-2): 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct GeluForwardArgs {
  TensorView x;  // any shape
  TensorView y;  // as x; may be x
};
void gelu_forward(const GeluForwardArgs& args, StreamView stream);

struct GeluBackwardArgs {
  TensorView x;  // the forward's input
  TensorView dy;
  TensorView dx;  // may be dy
};
void gelu_backward(const GeluBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels
