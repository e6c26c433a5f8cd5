#pragma once
// Sums of terms of any type into fp32, for the transports: which kernel adds what. The order is kernels/reduce.hpp's.

#include <span>

#include "runtime/comm/communicator.hpp"

namespace tessera::comm {

/// out[k] = parts[0][k] ⊕ parts[1][k] ⊕ …, `count` terms of `dtype` each. fp32: `out` may be any of the
/// parts. On the calling thread alone.
void sum_to_f32(std::span<const void* const> parts, DType dtype, float* out, std::size_t count);
/// out[k] = terms[k], widened (fp32: copied, unless it is the same memory).
void widen(SourceBuffer terms, float* out, std::size_t count);

}  // namespace tessera::comm
