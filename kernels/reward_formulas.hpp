// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a pair of scores contributes to loss and gradient, for host and device, in fp64.

#include "kernels/preference_formulas.hpp"

namespace tessera::kernels {

struct RewardTerms {
  double loss, chosen_slope, rejected_slope;
};

TESSERA_HD RewardTerms reward_terms(double chosen, double rejected, double margin, double center) {
  const double z = chosen - rejected - margin, sum = chosen + rejected, slope = -sigmoid(-z), pull = 2 * center * sum;
  return {-log_sigmoid(z) + center * sum * sum, slope + pull, -slope + pull};
}

}  // namespace tessera::kernels
