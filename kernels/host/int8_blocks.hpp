// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of block-wise int8: numbers from the start of a block on, on one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

struct Int8Blocks {
  /// residual: null, or kernels/int8_blocks.hpp's.
  void (*encode)(const float* x, float* residual, unsigned char* to, std::int64_t n);
  void (*decode)(const unsigned char* from, float* y, std::int64_t n);
};
TESSERA_TABLE_PLAIN(Int8Blocks, int8_blocks)

}  // namespace tessera::kernels::host
