// SPDX-License-Identifier: Apache-2.0
#pragma once
// The index of the largest element of each row: greedy choice of tokens where the logits are.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct ArgmaxArgs {
  TensorView x;    // (R, V) fp32
  TensorView out;  // (R) int32: the lowest index among equals; -1 if an element of the row is not finite
};
void argmax(const ArgmaxArgs& args, StreamView stream);

}  // namespace tessera::kernels
