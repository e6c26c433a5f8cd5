// SPDX-License-Identifier: Apache-2.0
#pragma once
// Backward of the norms sums the gradients of the weights by blocks of rows, each with its partial sums. Blocks depend
// on the number of rows alone, so any number of threads gives the same bits.

#include <cstdint>

namespace tessera::kernels {

inline constexpr std::int64_t norm_blocks = 64;  // at most
/// The same for RMSNorm on a device: fixed, so that bits do not depend on the GPU.
inline constexpr std::int64_t rms_norm_device_blocks = 528;

[[nodiscard]] inline std::int64_t norm_block_rows(std::int64_t rows) {
  const std::int64_t height = (rows + norm_blocks - 1) / norm_blocks;
  return height > 16 ? height : 16;
}

}  // namespace tessera::kernels
