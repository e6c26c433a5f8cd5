// SPDX-License-Identifier: Apache-2.0
#include "kernels/dequantize.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void dequantize(const DequantizeArgs& args, StreamView stream) {
  const QuantizedMatrix& matrix = args.matrix;
  TESSERA_ASSERT(matrix && args.bytes.dtype == DType::u8 && args.bytes.numel() == matrix.bytes(),
                 "%ld bytes of %s, %ld expected", args.bytes.numel(), name_of(matrix.format), matrix.bytes());
  TESSERA_ASSERT(args.out.numel() == matrix.numel(), "%s of %ld elements", args.out.shape.str().c_str(),
                 matrix.numel());
  TESSERA_DISPATCH(args.out, dequantize, args);
}

}  // namespace tessera::kernels
