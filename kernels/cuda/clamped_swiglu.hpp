// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of kernels/clamped_swiglu.hpp.

#include "kernels/clamped_swiglu.hpp"

namespace tessera::kernels::cuda {

void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args, StreamView stream);
void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels::cuda
