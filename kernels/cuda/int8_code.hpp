// SPDX-License-Identifier: Apache-2.0
#pragma once
// Block-wise int8 of one number, as kernels/host/isa/int8_blocks.cpp computes it.

#include <cstdint>

#include "kernels/cuda/element.hpp"

namespace tessera::kernels::cuda {

/// Magnitudes of floats are in the order of their bits, then infinity, then NaN.
TESSERA_HD std::uint32_t magnitude_bits(float x) { return bits_as<std::uint32_t>(x) & 0x7fffffffU; }

struct Int8Scale {
  float scale;
  bool finite;
};
/// Of a block whose largest magnitude has these bits.
TESSERA_HD Int8Scale int8_scale(std::uint32_t largest) {
  if (largest >= 0x7f800000U) return {bits_as<float>(0x7fc00000U), false};
  const float ratio = div(bits_as<float>(largest), 127.0F);
  return {ratio < 0x1p-126F ? 0.0F : ratio, true};
}

struct Int8Code {
  std::int8_t code;
  float rest;  // what the code lacks of x
};
/// x is finite.
TESSERA_HD Int8Code int8_code(float x, float scale) {
  if (scale == 0) return {0, x};
  const float code = sub(add(div(x, scale), 0x1.8p+23F), 0x1.8p+23F);  // rounded to nearest even
  return {static_cast<std::int8_t>(static_cast<std::int32_t>(code)), sub(x, mul(scale, code))};
}

TESSERA_HD float int8_value(std::int8_t code, float scale) { return mul(scale, static_cast<float>(code)); }

}  // namespace tessera::kernels::cuda
