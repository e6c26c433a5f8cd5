// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of AdamW: a range of elements on one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// Constants of a step, each rounded to fp32 once.
struct AdamWStep {
  float keep;                   // 1 - lr·wd, or 1
  float rate;                   // lr / c1
  float beta2, blend1, blend2;  // blend = 1 - β
  float sqrt_correction2, eps, clip;
};

struct AdamW {
  void (*step)(const AdamWStep& step, const float* grad, float* param, float* exp_avg, float* exp_avg_sq,
               std::int64_t n);
};
TESSERA_TABLE_PLAIN(AdamW, adamw)

}  // namespace tessera::kernels::host
