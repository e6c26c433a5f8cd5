// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's side of kernels/group_bias.hpp.

#include "kernels/group_bias.hpp"

namespace tessera::kernels::host {

void add_group_bias(const AddGroupBiasArgs& args);
void group_bias_gradient(const GroupBiasGradientArgs& args);
void add_group_bias_weights(const GroupBiasWeightsArgs& args);

}  // namespace tessera::kernels::host
