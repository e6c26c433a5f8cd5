// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/loss_scale.hpp"

#include <algorithm>

namespace tessera::train {

void LossScale::passed() {
  state_.at_least = 0;
  if (options_.consecutive_hysteresis) state_.tolerated = 0;
  if (++state_.good_steps < options_.window) return;
  state_.good_steps = 0;
  state_.tolerated = 0;
  state_.scale = std::min(2 * state_.scale, options_.most);
}

bool LossScale::overflowed() {
  state_.good_steps = 0;
  if (state_.scale <= options_.least) return ++state_.at_least < options_.patience;
  if (state_.tolerated + 1 < options_.hysteresis) {
    ++state_.tolerated;
    return true;
  }
  state_.scale = std::max(state_.scale / 2, options_.least);
  return true;
}

}  // namespace tessera::train
