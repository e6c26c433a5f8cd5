// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantized matrices to floats, in the arithmetic of bitsandbytes. One rounding to `out`'s type.

#include "runtime/base/quantized.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct DequantizeArgs {
  QuantizedMatrix matrix;
  TensorView bytes;  // u8: matrix.bytes(), aligned to 4 bytes
  TensorView out;    // (rows, columns) of fp32, bf16, f16 or, on the host, f64
};
/// nf4, fp4: out = value[code] · absmax, where absmax = dynamic_value[8-bit absmax] · its block's absmax + mean;
/// without double quantization, the absmax that is stored. int8: out = code · absmax of the row / 127. On this rank's
/// threads; the same bits for any number of them.
void dequantize(const DequantizeArgs& args, StreamView stream);

}  // namespace tessera::kernels
