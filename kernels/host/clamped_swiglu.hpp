// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's side of kernels/clamped_swiglu.hpp.

#include "kernels/clamped_swiglu.hpp"

namespace tessera::kernels::host {

void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args);
void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args);

}  // namespace tessera::kernels::host
