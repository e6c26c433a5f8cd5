// SPDX-License-Identifier: Apache-2.0
#pragma once
// SGD of one element as kernels/sgd.hpp defines it, for host and device, with the same bits.

#include "kernels/cuda/update_tiles.hpp"
#include "kernels/sgd.hpp"

namespace tessera::kernels::cuda {

/// Constants of a step, rounded once.
struct SgdConstants {
  float decay, rate, momentum, clip;
  bool nesterov;
};

TESSERA_HD SgdConstants sgd_constants(const SgdScalars& s, double clip, const UpdateTile& tile) {
  return {.decay = static_cast<float>(tile.weight_decay),
          .rate = static_cast<float>(mul(s.learning_rate, tile.lr_factor)),
          .momentum = static_cast<float>(s.momentum),
          .clip = static_cast<float>(clip),
          .nesterov = s.nesterov != 0};
}

TESSERA_HD void sgd_element(const SgdConstants& s, float grad, float& param) {
  param = fused(-s.rate, fused(s.decay, param, mul(s.clip, grad)), param);
}

TESSERA_HD void sgd_element(const SgdConstants& s, float grad, float& param, float& buffer) {
  const float g = fused(s.decay, param, mul(s.clip, grad));
  buffer = fused(s.momentum, buffer, g);
  param = fused(-s.rate, s.nesterov ? fused(s.momentum, buffer, g) : buffer, param);
}

}  // namespace tessera::kernels::cuda
