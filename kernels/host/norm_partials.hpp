// SPDX-License-Identifier: Apache-2.0
#pragma once
// Backward of the norms: gradients of the weights by blocks of rows (kernels/norm_blocks.hpp). Not for host/isa.

#include <algorithm>
#include <initializer_list>

#include "kernels/host/bias.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/norm_blocks.hpp"

namespace tessera::kernels::host {

inline constexpr std::int64_t norm_grain = 8;  // rows of forward that a thread takes at least

/// Calls backward(first row, rows, sums) for each block of rows, in parallel. It adds to `sums`: zeros, `channels` for
/// each of `outs`; null if all of `outs` are absent. Then adds the blocks' sums in order to the `outs` that are there,
/// or writes them. `workspace` holds the sums of norm_blocks blocks.
template <class T, class F>
void sum_row_blocks(std::int64_t rows, std::int64_t channels, std::initializer_list<TensorView> outs, bool accumulate,
                    const TensorView& workspace, const F& backward) {
  const std::int64_t height = norm_block_rows(rows), blocks = (rows + height - 1) / height,
                     stride = channels * static_cast<std::int64_t>(outs.size());
  const bool wanted = std::ranges::any_of(outs, [](const TensorView& out) { return static_cast<bool>(out); });
  auto* partial = wanted ? static_cast<Acc<T>*>(workspace.data) : nullptr;
  parallel_parts(blocks, [&](std::int64_t block) {
    Acc<T>* const sums = wanted ? partial + block * stride : nullptr;
    if (wanted) std::fill_n(sums, stride, Acc<T>(0));
    backward(block * height, std::min(height, rows - block * height), sums);
  });
  for (const TensorView& out : outs) {
    if (out)
      dispatch_gradient_dtype<T>(out.dtype, [&]<class G>(G) {
        with_fp32_accumulator(out.as<G>(), channels, accumulate ? PreviousValues::keep : PreviousValues::ignore,
                              [&](std::int64_t begin, std::int64_t end, auto* sums) {
                                bias<Acc<T>>().column_sums(partial + begin, blocks, stride, end - begin, sums,
                                                           accumulate);
                              });
      });
    if (wanted) partial += channels;
  }
}

}  // namespace tessera::kernels::host
