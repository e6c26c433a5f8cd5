#pragma once
// Fresh parameters: element i of parameter `name` is a function of (seed, name, i) alone.

#include "runtime/base/param.hpp"

namespace tessera::kernels {

/// Writes elements [first, first + count) of the parameter to `out`.
void initialise(const ParamSpec& param, std::uint64_t seed, std::int64_t first, std::int64_t count, float* out);

}  // namespace tessera::kernels
