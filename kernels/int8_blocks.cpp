// SPDX-License-Identifier: Apache-2.0
#include "kernels/int8_blocks.hpp"

#include "kernels/cuda/int8_blocks.hpp"
#include "kernels/host/int8_blocks.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

void encode_int8(const EncodeInt8Args& args, StreamView stream) {
  TESSERA_ASSERT(is_float(args.dtype) && args.dtype != DType::f64, "numbers of %s", name_of(args.dtype));
  TESSERA_DISPATCH(stream, encode_int8, args);
}

void decode_int8(const DecodeInt8Args& args, StreamView stream) {
  TESSERA_ASSERT(is_float(args.dtype) && args.dtype != DType::f64, "numbers of %s", name_of(args.dtype));
  TESSERA_DISPATCH(stream, decode_int8, args);
}

void sum_tree_int8(const SumTreeInt8Args& args, StreamView stream) {
  TESSERA_ASSERT(args.number > 0 && args.number <= max_sum_parts, "%zu parts", args.number);
  TESSERA_DISPATCH(stream, sum_tree_int8, args);
}

}  // namespace tessera::kernels
