// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums in a documented order, norms that do not depend on the order, and fill; fp32.

#include <span>

#include "runtime/base/exact_sum.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// The identity of fp32 addition: x + (-0.0) is x for every x, +0 and -0 too. An empty micro-batch contributes it.
inline constexpr float sum_identity = -0.0F;

/// out[k] = parts[0][k] + parts[1][k] + …, by the binary-counter reduction tree: part i is added like a carry,
/// ((0+1)+(2+3))+((4+5)+…), and remaining subtrees are added from the smallest to the largest. For a power of two it is
/// the balanced tree. On the calling thread alone. `out` may be any of the parts. At most max_sum_parts parts.
inline constexpr std::size_t max_sum_parts = std::size_t{1} << 20;
struct SumTreeArgs {
  std::span<const float* const> parts;
  float* out = nullptr;
  std::size_t count = 0;
};
void sum_tree(const SumTreeArgs& args, StreamView stream);

/// The same of parts in bf16 or fp16: widened, then added in fp32 in the same order. `out` is fp32 and none of the
/// parts.
struct SumTree16BitArgs {
  std::span<const void* const> parts;
  DType dtype = DType::bf16;  // or f16
  float* out = nullptr;
  std::size_t count = 0;
};
void sum_tree_16bit(const SumTree16BitArgs& args, StreamView stream);

/// y = x + y, fp32, on the calling thread alone (one step of the counter).
void add_to(const float* x, float* y, std::size_t count, StreamView stream);
/// The same of x in bf16 or fp16, widened.
void add_16bit_to(const void* x, DType dtype, float* y, std::size_t count, StreamView stream);

/// Adds Σ x² to `sum`, independent of how the elements are spread over ranks. Blocks of norm_block elements are summed
/// in double in a fixed order (lane j of 16 takes elements j, j + 16, …; then lanes j and j + 8 are added, j and j + 4,
/// j + 2, j + 1), and the blocks are added exactly: the same bits on every instruction set. count must be a multiple of
/// norm_block. On the calling thread alone. Only non-finite elements set sum.nonfinite(): the square of a float fits a
/// double.
inline constexpr std::size_t norm_block = 128;
void sum_of_squares(const float* x, std::size_t count, ExactSum& sum, StreamView stream);

/// x[k] = value, over this rank's threads.
void fill(float* x, std::size_t count, float value, StreamView stream);

}  // namespace tessera::kernels
