// SPDX-License-Identifier: Apache-2.0
// AdamW with 8-bit moments: AdamW's sequence of operations on a block's fp32 moments, which are then quantized again.
#include "kernels/host/adamw_8bit.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// Stores x (n elements of a block) as codes and magnitude.
void quantize(const MomentBlocks& to, std::int64_t index, const float* x, std::int64_t n) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    largest = magnitude > largest ? magnitude : largest;
  }
  to.absmax[index] = largest;
  const float divisor = largest > 0 ? largest : 1.0F;
  const float* const thresholds = to.code.thresholds;
  std::int32_t found[quantization_block];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float scaled = x[i] / divisor;
    std::int32_t low = 0;  // how many thresholds are below
    low += scaled > thresholds[low + 127] ? 128 : 0;
    low += scaled > thresholds[low + 63] ? 64 : 0;
    low += scaled > thresholds[low + 31] ? 32 : 0;
    low += scaled > thresholds[low + 15] ? 16 : 0;
    low += scaled > thresholds[low + 7] ? 8 : 0;
    low += scaled > thresholds[low + 3] ? 4 : 0;
    low += scaled > thresholds[low + 1] ? 2 : 0;
    low += scaled > thresholds[low] ? 1 : 0;
    found[i] = low;
  }
  std::uint8_t* const codes = to.codes + index * quantization_block;
  for (std::int64_t i = 0; i < n; ++i) codes[i] = static_cast<std::uint8_t>(found[i]);
}

void step(const AdamWStep& step, const float* grad, float* param, const MomentBlocks& exp_avg,
          const MomentBlocks& exp_avg_sq, std::int64_t n) {
  const AdamWStep s = step;
  for (std::int64_t begin = 0, index = 0; begin < n; begin += quantization_block, ++index) {
    const std::int64_t count = n - begin < quantization_block ? n - begin : quantization_block;
    float m[quantization_block], v[quantization_block];
    const float m_scale = exp_avg.absmax[index], v_scale = exp_avg_sq.absmax[index];
    const std::uint8_t *const m_codes = exp_avg.codes + begin, *const v_codes = exp_avg_sq.codes + begin;
    const float *const m_values = exp_avg.code.values, *const v_values = exp_avg_sq.code.values;
    const float* const gradient = grad + begin;
    float* const x = param + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      const float old_m = m_values[m_codes[i]] * m_scale, old_v = v_values[v_codes[i]] * v_scale;
      const float g = s.clip * gradient[i];
      const float p = x[i] * s.keep;
      m[i] = fma_exact(s.blend1, g - old_m, old_m);
      v[i] = fma_exact(s.blend2, g * g, s.beta2 * old_v);
      const float denominator = __builtin_sqrtf(v[i]) / s.sqrt_correction2 + s.eps;
      x[i] = fma_exact(-s.rate, m[i] / denominator, p);
    }
    quantize(exp_avg, index, m, count);
    quantize(exp_avg_sq, index, v, count);
  }
}

}  // namespace

const AdamW8Bit adamw_8bit_table = {step};

}  // namespace tessera::kernels::host::TESSERA_ISA
