// SPDX-License-Identifier: Apache-2.0
#pragma once
// Constants of an AdamW step, for the host's two forms of it.

#include "kernels/adamw.hpp"
#include "kernels/host/adamw.hpp"

namespace tessera::kernels::host {

[[nodiscard]] inline AdamWStep step_of(const AdamWScalars& s, double clip, const UpdateSegment& segment) {
  const double rate = s.learning_rate * segment.lr_factor;
  return {
      .keep = static_cast<float>(1 - rate * segment.weight_decay),
      .rate = static_cast<float>(rate / s.bias_correction1),
      .beta2 = static_cast<float>(s.beta2),
      .blend1 = static_cast<float>(1 - s.beta1),
      .blend2 = static_cast<float>(1 - s.beta2),
      .sqrt_correction2 = static_cast<float>(s.sqrt_bias_correction2),
      .eps = static_cast<float>(s.eps),
      .clip = static_cast<float>(clip),
  };
}

}  // namespace tessera::kernels::host
