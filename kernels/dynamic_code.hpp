// SPDX-License-Identifier: Apache-2.0
#pragma once
// The dynamic 8-bit code of block-wise quantized optimizer states (Dettmers, Lewis, Shleifer, Zettlemoyer 2022), as
// bitsandbytes': a block of elements has its largest magnitude in fp32, and of each element x the index of the code's
// value that is nearest to x / magnitude (of two equally near, the lower index). Of a block of zeros the magnitude is
// 0.

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/dynamic_code_values.hpp"
#include "kernels/quantization_block.hpp"

namespace tessera::kernels {

struct DynamicCode {
  float values[256] = {};      // ascending
  float thresholds[256] = {};  // [i]: the largest x that is not nearer to values[i + 1] than to values[i]
};

constexpr DynamicCode make_dynamic_code(const float (&values)[256]) {
  DynamicCode code;
  for (int i = 0; i < 256; ++i) code.values[i] = values[i];
  for (int i = 0; i < 255; ++i) {
    const double middle = (static_cast<double>(values[i]) + static_cast<double>(values[i + 1])) / 2;  // exact
    const auto nearest = static_cast<float>(middle);
    const auto bits = std::bit_cast<std::uint32_t>(nearest);
    const bool above = static_cast<double>(nearest) > middle;
    code.thresholds[i] = above ? std::bit_cast<float>(nearest > 0 ? bits - 1 : bits + 1) : nearest;
  }
  code.thresholds[255] = std::numeric_limits<float>::infinity();
  return code;
}

inline constexpr DynamicCode signed_dynamic_code = make_dynamic_code(signed_dynamic_values),
                             unsigned_dynamic_code = make_dynamic_code(unsigned_dynamic_values);

}  // namespace tessera::kernels
