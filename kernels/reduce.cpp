// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void sum_tree(const SumTreeArgs& args, StreamView stream) {
  TESSERA_ASSERT(!args.parts.empty() && args.parts.size() <= max_sum_parts, "%zu parts", args.parts.size());
  TESSERA_DISPATCH(stream, sum_tree, args);
}

void sum_tree_16bit(const SumTree16BitArgs& args, StreamView stream) {
  TESSERA_ASSERT(!args.parts.empty() && args.parts.size() <= max_sum_parts, "%zu parts", args.parts.size());
  TESSERA_ASSERT(args.dtype == DType::bf16 || args.dtype == DType::f16, "parts of %s", name_of(args.dtype));
  TESSERA_DISPATCH(stream, sum_tree_16bit, args);
}

void add_to(const float* x, float* y, std::size_t count, StreamView stream) {
  TESSERA_DISPATCH(stream, add_to, x, y, count);
}

void add_16bit_to(const void* x, DType dtype, float* y, std::size_t count, StreamView stream) {
  TESSERA_ASSERT(dtype == DType::bf16 || dtype == DType::f16, "x of %s", name_of(dtype));
  TESSERA_DISPATCH(stream, add_16bit_to, x, dtype, y, count);
}

void sum_of_squares(const float* x, std::size_t count, ExactSum& sum, StreamView stream) {
  TESSERA_ASSERT(count % norm_block == 0, "%zu elements", count);
  if constexpr (cuda_built)
    if (is_on_cuda(stream))
      return cuda::sum_of_squares(x, count, reinterpret_cast<std::int64_t*>(&sum), stream);  // its first member
  host::sum_of_squares(x, count, sum);
}

void fill(float* x, std::size_t count, float value, StreamView stream) {
  TESSERA_DISPATCH(stream, fill, x, count, value);
}

}  // namespace tessera::kernels
