// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of kernels/reward_loss.hpp.

#include "kernels/reward_loss.hpp"

namespace tessera::kernels::cuda {

void score_sequences(const ScoreArgs& args, StreamView stream);
void reward_loss(const RewardLossArgs& args, StreamView stream);
void score_backward(const ScoreBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels::cuda
