// SPDX-License-Identifier: Apache-2.0
#pragma once
// Block-wise int8: numbers in blocks of quantization_block, each a scale in fp32 and a code for every number. What
// compressed collectives send (runtime/comm/int8_collectives.hpp). Host memory only.
//
// scale = (largest magnitude of the block) / 127, code = number / scale rounded to nearest even, in -127 … 127; the
// number read back is scale · code, rounded once. A block whose scale would be subnormal has scale 0. A block with a
// number that is not finite has scale NaN: all its numbers are read back as NaN. The same bits on every instruction
// set. All functions run on the calling thread alone.

#include <cstddef>
#include <span>

#include "kernels/quantization_block.hpp"

namespace tessera::kernels {

/// Bytes of `count` numbers: block after block, the scale and then the codes; rounded up to 4 bytes. So the numbers
/// from a block's first on begin int8_bytes(those before it) after the first.
[[nodiscard]] constexpr std::size_t int8_bytes(std::size_t count) {
  constexpr auto block = static_cast<std::size_t>(quantization_block);
  return (count + block - 1) / block * sizeof(float) + (count + 3) / 4 * 4;
}

struct EncodeInt8Args {
  const float* x = nullptr;
  std::byte* to = nullptr;  // int8_bytes(count) bytes, aligned to 4
  std::size_t count = 0;
  /// Error feedback, if not null: x + residual is encoded, and residual becomes what the codes lack of it. Of a block
  /// that is not finite it stays.
  float* residual = nullptr;
};
void encode_int8(const EncodeInt8Args& args);

/// Numbers of `from`, int8_bytes(count) bytes.
void decode_int8(const std::byte* from, float* to, std::size_t count);

/// sum_tree (kernels/reduce.hpp) of parts that are encoded: decoded, then added in fp32 in the same order. `out` is
/// none of the parts.
struct SumTreeInt8Args {
  std::span<const void* const> parts;  // int8_bytes(count) bytes each
  float* out = nullptr;
  std::size_t count = 0;
};
void sum_tree_int8(const SumTreeInt8Args& args);

}  // namespace tessera::kernels
