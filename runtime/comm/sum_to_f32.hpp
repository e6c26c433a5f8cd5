// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over ranks' buffers of any type into fp32, in the order of kernels/reduce.hpp.

#include <span>

#include "runtime/comm/communicator.hpp"

namespace tessera::comm {

/// out[k] = parts[0][k] ⊕ parts[1][k] ⊕ …, `count` elements of `dtype` each. `out` may be one of the parts if they are
/// fp32. Runs on the calling thread alone.
void sum_to_f32(std::span<const void* const> parts, DType dtype, float* out, std::size_t count);
/// out[k] = source[k], widened to fp32; no copy if it is the same memory.
void widen(SourceBuffer source, float* out, std::size_t count);

}  // namespace tessera::comm
