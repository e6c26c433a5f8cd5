// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of kernels/group_bias.hpp.

#include "kernels/group_bias.hpp"

namespace tessera::kernels::cuda {

void add_group_bias(const AddGroupBiasArgs& args, StreamView stream);
void group_bias_gradient(const GroupBiasGradientArgs& args, StreamView stream);
void add_group_bias_weights(const GroupBiasWeightsArgs& args, StreamView stream);

}  // namespace tessera::kernels::cuda
