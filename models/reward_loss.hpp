// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loss of a reward model's head.

#include "models/loss.hpp"

namespace tessera::models {

struct RewardSpec {
  std::int32_t pad_token = -1;  // Model::pad_token
  double center = 0;            // kernels::RewardLossArgs
};
/// The loss of pairs of scores (kernels/reward_loss.hpp); needs Batch::positions. Adds kernels::num_preference_sums
/// sums to Batch::metrics, of which it computes those of rewards, and leaves each sequence's score in
/// Batch::sequence_values.
[[nodiscard]] std::shared_ptr<const Loss> reward_loss(const RewardSpec& spec);

}  // namespace tessera::models
