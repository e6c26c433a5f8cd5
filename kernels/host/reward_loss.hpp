// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's side of kernels/reward_loss.hpp.

#include "kernels/reward_loss.hpp"

namespace tessera::kernels::host {

void score_sequences(const ScoreArgs& args);
void reward_loss(const RewardLossArgs& args);
void score_backward(const ScoreBackwardArgs& args);

}  // namespace tessera::kernels::host
