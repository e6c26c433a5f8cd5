// SPDX-License-Identifier: Apache-2.0
// Block-wise int8. No fused operations: the same bits on every instruction set.
#include "kernels/host/int8_blocks.hpp"

#include "kernels/host/isa/math.hpp"
#include "kernels/quantization_block.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr float int8_rounder =
    0x1.8p+23F;  // x + int8_rounder - int8_rounder is x rounded to nearest even, for |x| < 2^22

/// Codes of a block of finite numbers x, and what these lack of x.
void encode_block(const float* x, float scale, std::int8_t* codes, float* rest, std::int64_t n) {
  if (scale == 0) {
    for (std::int64_t i = 0; i < n; ++i) codes[i] = 0;
    for (std::int64_t i = 0; i < n; ++i) rest[i] = x[i];
    return;
  }
  float rounded[quantization_block];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    rounded[i] = x[i] / scale + int8_rounder - int8_rounder;
    rest[i] = x[i] - scale * rounded[i];
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) codes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(rounded[i]));
}

constexpr std::int64_t int8_stride = quantization_block + static_cast<std::int64_t>(sizeof(float));  // of blocks, bytes

void encode(const float* x, float* residual, unsigned char* to, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += quantization_block, to += int8_stride) {
    auto* const codes = reinterpret_cast<std::int8_t*>(to + sizeof(float));
    const std::int64_t count = n - begin < quantization_block ? n - begin : quantization_block;
    float sum[quantization_block], rest[quantization_block];
    if (residual == nullptr) {
      for (std::int64_t i = 0; i < count; ++i) sum[i] = x[begin + i];
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) sum[i] = x[begin + i] + residual[begin + i];
    }
    std::uint32_t largest = 0;  // the magnitudes of floats are in the order of their bits, then infinity, then NaN
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t magnitude = bits_as<std::uint32_t>(sum[i]) & 0x7fffffffU;
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= 0x7f800000U) {
      const std::uint32_t nan = 0x7fc00000U;
      __builtin_memcpy(to, &nan, sizeof nan);
      for (std::int64_t i = 0; i < count; ++i) codes[i] = 0;
      continue;
    }
    const float ratio = bits_as<float>(largest) / 127.0F, scale = ratio < 0x1p-126F ? 0.0F : ratio;
    __builtin_memcpy(to, &scale, sizeof scale);
    encode_block(sum, scale, codes, rest, count);
    for (std::int64_t i = 0; residual != nullptr && i < count; ++i) residual[begin + i] = rest[i];
  }
}

void decode(const unsigned char* from, float* y, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += quantization_block, from += int8_stride) {
    const std::int64_t count = n - begin < quantization_block ? n - begin : quantization_block;
    const auto* const codes = reinterpret_cast<const std::int8_t*>(from + sizeof(float));
    float scale;
    __builtin_memcpy(&scale, from, sizeof scale);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[begin + i] = scale * static_cast<float>(codes[i]);
  }
}

}  // namespace

const Int8Blocks int8_blocks_table = {encode, decode};

}  // namespace tessera::kernels::host::TESSERA_ISA
