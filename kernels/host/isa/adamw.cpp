// SPDX-License-Identifier: Apache-2.0
// AdamW: a fixed sequence of correctly rounded operations, so that every instruction set gives the same bits.
#include "kernels/host/adamw.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

void step(const AdamWStep& step, const float* grad, float* param, float* exp_avg, float* exp_avg_sq, std::int64_t n) {
  const AdamWStep s = step;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = s.clip * grad[i];
    const float p = param[i] * s.keep;
    const float m = fma_exact(s.blend1, g - exp_avg[i], exp_avg[i]);
    const float v = fma_exact(s.blend2, g * g, s.beta2 * exp_avg_sq[i]);
    const float denominator = __builtin_sqrtf(v) / s.sqrt_correction2 + s.eps;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    param[i] = fma_exact(-s.rate, m / denominator, p);
  }
}

}  // namespace

const AdamW adamw_table = {step};

}  // namespace tessera::kernels::host::TESSERA_ISA
