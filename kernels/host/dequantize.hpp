// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables of quantized matrices: a range of blocks, or a row, on one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Dequantize {
  /// n elements of the blocks from the first on. values: of the 16 codes; absmax: one for each block of 64.
  void (*four_bit)(const float* values, const std::uint8_t* codes, const float* absmax, T* out, std::int64_t n);
  /// n elements of a row.
  void (*int8)(const std::int8_t* codes, float absmax, T* out, std::int64_t n);
};
TESSERA_TABLE(Dequantize, dequantize)

struct Quantize {
  /// The largest magnitude of n elements; NaN or infinite if one of them is.
  float (*absmax)(const float* x, std::int64_t n);
  /// n elements of one block of 64: codes[i / 2] has element i, the even ones in the upper half.
  void (*nf4)(const float* x, float absmax, std::uint8_t* codes, std::int64_t n);
  void (*fp4)(const float* x, float absmax, std::uint8_t* codes, std::int64_t n);
  /// n elements of one row.
  void (*int8)(const float* x, float absmax, std::int8_t* codes, std::int64_t n);
};
TESSERA_TABLE_PLAIN(Quantize, quantize)

}  // namespace tessera::kernels::host
