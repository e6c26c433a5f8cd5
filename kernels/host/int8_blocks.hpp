// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's side of block-wise int8, on one thread; its table: numbers from the start of a block on.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels {
struct EncodeInt8Args;
struct DecodeInt8Args;
}  // namespace tessera::kernels

namespace tessera::kernels::host {

struct Int8Blocks {
  /// residual: null, or kernels/int8_blocks.hpp's.
  void (*encode)(const float* x, float* residual, unsigned char* to, std::int64_t n);
  void (*decode)(const unsigned char* from, float* y, std::int64_t n);
};
TESSERA_TABLE_PLAIN(Int8Blocks, int8_blocks)

void encode_int8(const EncodeInt8Args& args);
void decode_int8(const DecodeInt8Args& args);

}  // namespace tessera::kernels::host
