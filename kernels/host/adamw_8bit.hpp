// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of AdamW with 8-bit moments: a range of blocks on one thread.

#include <cstdint>

#include "kernels/host/adamw.hpp"
#include "kernels/quantization_block.hpp"

namespace tessera::kernels::host {

/// kernels/dynamic_code.hpp: 256 each.
struct CodeTables {
  const float *values, *thresholds;
};
/// A moment's blocks and the code they are in.
struct MomentBlocks {
  CodeTables code;
  std::uint8_t* codes;
  float* absmax;
};

struct AdamW8Bit {
  /// n elements from the start of a block on.
  void (*step)(const AdamWStep& step, const float* grad, float* param, const MomentBlocks& exp_avg,
               const MomentBlocks& exp_avg_sq, std::int64_t n);
};
TESSERA_TABLE_PLAIN(AdamW8Bit, adamw_8bit)

}  // namespace tessera::kernels::host
