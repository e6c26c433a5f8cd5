// SPDX-License-Identifier: Apache-2.0
// Codes of 4 bits and of int8: the nearest value to element / absmax.
#include "kernels/host/dequantize.hpp"
#include "kernels/quantized_codes.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr float infinite = __builtin_huge_valf();

float largest_magnitude(const float* x, std::int64_t n) {
  float largest = 0;
  std::int32_t bad = 0;
#pragma omp simd reduction(max : largest) reduction(| : bad)
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    bad |= magnitude < infinite ? 0 : 1;
    largest = magnitude > largest ? magnitude : largest;
  }
  return bad != 0 ? infinite : largest;
}

struct Nf4 {
  static constexpr std::int32_t code(std::int32_t rank) { return rank; }
  static constexpr float value(int rank) { return nf4_values[rank]; }
};
struct Fp4 {
  static constexpr std::int32_t code(std::int32_t rank) { return fp4_order[rank]; }
  static constexpr float value(int rank) { return fp4_values[fp4_order[rank]]; }
};

/// The bounds between neighbors of the code, rounded to fp32 as bitsandbytes computes them.
template <class Code>
constexpr float bound(int i) {
  return (Code::value(i) + Code::value(i + 1)) / 2;
}

template <class Code>
void four_bit_codes(const float* x, float absmax, std::uint8_t* codes, std::int64_t n) {
  const float scale = 1.0F / (absmax < 1e-38F ? 1e-38F : absmax);
  std::int32_t found[64];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    float scaled = x[i] * scale;
    scaled = scaled > 1.0F ? 1.0F : scaled < -1.0F ? -1.0F : scaled;
    std::int32_t rank = 0;  // how many bounds are below
#pragma GCC unroll 15
    for (int b = 0; b < 15; ++b) rank += scaled > bound<Code>(b) ? 1 : 0;
    found[i] = rank;
  }
  for (std::int64_t i = 0; i < n; i += 2)
    codes[i / 2] = static_cast<std::uint8_t>(Code::code(found[i]) << 4 | (i + 1 < n ? Code::code(found[i + 1]) : 0));
}

void int8_codes(const float* x, float absmax, std::int8_t* codes, std::int64_t n) {
  const float scale = absmax > 0 ? 1.0F / absmax * 127.0F : 0.0F;  // torch's 127 / absmax is rounded twice
  constexpr float to_integer = 12582912.0F;  // 1.5 · 2²³: added and subtracted, rounds to nearest even
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float scaled = x[i] * scale + to_integer;
    codes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(scaled - to_integer));
  }
}

}  // namespace

const Quantize quantize_table = {largest_magnitude, four_bit_codes<Nf4>, four_bit_codes<Fp4>, int8_codes};

}  // namespace tessera::kernels::host::TESSERA_ISA
