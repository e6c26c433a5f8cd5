// SPDX-License-Identifier: Apache-2.0
#pragma once
// Initial values: element i of parameter `name` is a function of (seed, name, i) only.

#include "runtime/base/param.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels {

/// Writes elements [first, first + count) of the parameter to `out`, over this rank's threads. Normal: with key = words
/// 0 and 1 of philox(seed, hash64(name)) and w = philox(key, i / 4), elements 4k…4k+3 are std times r(w0)·cos(w1),
/// r(w0)·sin(w1), r(w2)·cos(w3), r(w2)·sin(w3), where r(w) = √(-2 ln((w + ½)/2^32)) and the angle is 2π·w/2^32
/// (Box-Muller), computed in double without fused operations and rounded to fp32: the same bits on every instruction
/// set. Uniform (host memory only): element i is std·(2·(w + ½)/2^32 - 1) with w = word i % 4 of philox(key, i / 4).
void initialize(const ParamSpec& param, std::uint64_t seed, std::int64_t first, std::int64_t count, float* out,
                StreamView stream = host_stream);

}  // namespace tessera::kernels
