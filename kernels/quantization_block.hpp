// SPDX-License-Identifier: Apache-2.0
#pragma once
// The block of block-wise quantized optimizer states. Without other headers: kernels/host/isa includes it.

#include <cstdint>

namespace tessera::kernels {

/// Elements of a block.
inline constexpr std::int64_t quantization_block = 256;

}  // namespace tessera::kernels
