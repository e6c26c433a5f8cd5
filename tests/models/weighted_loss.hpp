// SPDX-License-Identifier: Apache-2.0
#pragma once
// Losses of tests whose gradient is that of cross-entropy with weights of targets.

#include <vector>

#include "models/loss.hpp"

namespace tessera::test {

/// Writes the gradients that `args` asks for, of cross-entropy with a weight for each target. Adds to no sums.
inline void weighted_cross_entropy(models::LossArgs args, std::vector<float>& weights) {
  kernels::LossSums unused;
  models::Batch weighted = *args.batch;
  weighted.sums = &unused;
  weighted.loss_weights = {weights.data(), weighted.targets.shape};
  args.batch = &weighted;
  models::cross_entropy()->compute(args);
}

}  // namespace tessera::test
