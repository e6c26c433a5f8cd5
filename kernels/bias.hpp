// SPDX-License-Identifier: Apache-2.0
#pragma once
// Column sums: the gradient of a bias.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct BiasBackwardArgs {
  TensorView dy;            // (N, C)
  std::int64_t stride = 0;  // elements from one row of dy to the next; 0: C
  TensorView dbias;         // (C) of dy's dtype, or fp32 with 16-bit dy; summed in fp32, rounded once
  bool accumulate = false;  // add to dbias, or overwrite it
};
void bias_backward(const BiasBackwardArgs& args, StreamView stream);

/// y += x, each element rounded once (residual connections).
struct AddArgs {
  TensorView x;
  TensorView y;
};
void add(const AddArgs& args, StreamView stream);

}  // namespace tessera::kernels
