// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sum_to_f32.hpp"

#include <cstring>

#include "kernels/convert.hpp"
#include "kernels/reduce.hpp"

namespace tessera::comm {

void widen(SourceBuffer source, float* out, std::size_t count) {
  if (count == 0 || source.data == out) return;
  const Shape n{static_cast<std::int64_t>(count)};
  if (source.dtype == DType::f32) std::memcpy(out, source.data, count * sizeof(float));
  else
    kernels::convert_serial({.from = {const_cast<void*>(source.data), source.dtype, n}, .to = {out, n}}, host_stream);
}

void sum_to_f32(std::span<const void* const> parts, DType dtype, float* out, std::size_t count) {
  if (dtype == DType::f32)
    kernels::sum_tree(
        {.parts = {reinterpret_cast<const float* const*>(parts.data()), parts.size()}, .out = out, .count = count},
        host_stream);
  else kernels::sum_tree_16bit({.parts = parts, .dtype = dtype, .out = out, .count = count}, host_stream);
}

}  // namespace tessera::comm
