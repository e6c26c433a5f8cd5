// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW of one element as kernels/adamw.hpp defines it, for host and device, with the same bits.

#include "kernels/adamw.hpp"
#include "kernels/cuda/update_tiles.hpp"

namespace tessera::kernels::cuda {

/// Constants of a step: computed in double, rounded once.
struct AdamWConstants {
  float keep, rate, beta2, blend1, blend2, sqrt_correction2, eps, clip;
};

TESSERA_HD AdamWConstants adamw_constants(const AdamWScalars& s, double clip, const UpdateTile& tile) {
  const double rate = mul(s.learning_rate, tile.lr_factor);
  return {.keep = static_cast<float>(sub(1.0, mul(rate, tile.weight_decay))),
          .rate = static_cast<float>(div(rate, s.bias_correction1)),
          .beta2 = static_cast<float>(s.beta2),
          .blend1 = static_cast<float>(sub(1.0, s.beta1)),
          .blend2 = static_cast<float>(sub(1.0, s.beta2)),
          .sqrt_correction2 = static_cast<float>(s.sqrt_bias_correction2),
          .eps = static_cast<float>(s.eps),
          .clip = static_cast<float>(clip)};
}

TESSERA_HD void adamw_element(const AdamWConstants& s, float grad, float& param, float& exp_avg, float& exp_avg_sq) {
  const float g = mul(s.clip, grad), p = mul(param, s.keep);
  const float m = fused(s.blend1, sub(g, exp_avg), exp_avg);
  const float v = fused(s.blend2, mul(g, g), mul(s.beta2, exp_avg_sq));
  const float denominator = add(div(root(v), s.sqrt_correction2), s.eps);
  exp_avg = m;
  exp_avg_sq = v;
  param = fused(-s.rate, div(m, denominator), p);
}

}  // namespace tessera::kernels::cuda
