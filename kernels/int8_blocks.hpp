// SPDX-License-Identifier: Apache-2.0
#pragma once
// Block-wise int8: numbers in blocks of quantization_block, each a scale in fp32 and a code for every number. What
// compressed collectives send (runtime/comm/int8_collectives.hpp).
//
// scale = (largest magnitude of the block) / 127, code = number / scale rounded to nearest even, in -127 … 127; the
// number read back is scale · code, rounded once. A block whose scale would be subnormal has scale 0. A block with a
// number that is not finite has scale NaN: all its numbers are read back as NaN. The same bits on every instruction
// set and on devices, but for a NaN's. On the host all functions run on the calling thread alone.

#include <cstddef>

#include "kernels/quantization_block.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels {

/// Bytes of `count` numbers: block after block, the scale and then the codes; rounded up to 4 bytes. So the numbers
/// from a block's first on begin int8_bytes(those before it) after the first.
[[nodiscard]] constexpr std::size_t int8_bytes(std::size_t count) {
  constexpr auto block = static_cast<std::size_t>(quantization_block);
  return (count + block - 1) / block * sizeof(float) + (count + 3) / 4 * 4;
}

/// Encodes `chunks` chunks of `count` numbers, each chunk by itself.
struct EncodeInt8Args {
  const void* x = nullptr;   // chunks · count numbers
  DType dtype = DType::f32;  // of x: or bf16, f16, which are widened
  std::byte* to = nullptr;   // chunks · int8_bytes(count) bytes, aligned to 4
  std::size_t count = 0, chunks = 1;
  /// Error feedback, if not null: x + residual is encoded, and residual becomes what the codes lack of it. As many
  /// numbers as x. Of a block that is not finite it stays.
  float* residual = nullptr;
};
void encode_int8(const EncodeInt8Args& args, StreamView stream);

/// The reverse.
struct DecodeInt8Args {
  const std::byte* from = nullptr;
  void* to = nullptr;
  DType dtype = DType::f32;  // of `to`: or bf16, f16, rounded once more
  std::size_t count = 0, chunks = 1;
};
void decode_int8(const DecodeInt8Args& args, StreamView stream);

/// sum_tree (kernels/reduce.hpp) of parts that are encoded: decoded, then added in fp32 in the same order. `out` is not
/// in `parts`. At most max_sum_parts parts.
struct SumTreeInt8Args {
  const std::byte* parts = nullptr;  // `number` parts of int8_bytes(count) bytes, one after the other, aligned to 4
  std::size_t number = 0;
  float* out = nullptr;
  std::size_t count = 0;
};
void sum_tree_int8(const SumTreeInt8Args& args, StreamView stream);

}  // namespace tessera::kernels
