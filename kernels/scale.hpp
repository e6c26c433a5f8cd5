// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element-wise changes of a tensor in place: a factor, and a soft cap.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// x *= factor, each element rounded once. Gradients: the same of dx.
struct ScaleArgs {
  TensorView x;
  double factor = 1;
};
void scale(const ScaleArgs& args, StreamView stream);

/// x = cap·tanh(x / cap), each element rounded once.
struct SoftCapArgs {
  TensorView x;
  double cap = 0;  // above 0
};
void soft_cap(const SoftCapArgs& args, StreamView stream);

}  // namespace tessera::kernels
