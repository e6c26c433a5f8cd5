#pragma once
// What the two norms share: which team takes a row, the split of rows whose partial weight gradients are added in one order, and that addition.
// Only for .cu files.

#include "kernels/cuda/team.cuh"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {

inline constexpr std::int64_t norm_blocks = 64;      // of rows in backward, each with its partial sums, as on the host
inline constexpr std::int64_t norm_least_rows = 16;  // in a block
inline constexpr std::int64_t warp_channels = 512;   // up to here a warp takes a row, beyond it a block

/// Rows of a block: a function of their number alone.
inline std::int64_t norm_block_rows(std::int64_t rows) {
  const std::int64_t height = (rows + norm_blocks - 1) / norm_blocks;
  return height > norm_least_rows ? height : norm_least_rows;
}

/// out[c] = Σ over parts in order (from out, where accumulate), rounded once. Part p of column c is parts[p·stride + c].
template <class G>
__global__ void __launch_bounds__(256) fold_parts_kernel(const float* parts, std::int64_t count, std::int64_t stride,
                                                         std::int64_t columns, G* out, bool accumulate) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (column >= columns) return;
  float sum = accumulate ? to_float(out[column]) : 0.0F;
  for (std::int64_t part = 0; part < count; ++part) sum += parts[part * stride + column];
  out[column] = rounded<G>(sum);
}

template <class G>
void fold_parts(const float* parts, std::int64_t count, std::int64_t stride, std::int64_t columns, G* out, bool accumulate,
                StreamView stream) {
  fold_parts_kernel<G><<<blocks_for(columns, 256), 256, 0, stream_of(stream)>>>(parts, count, stride, columns, out, accumulate);
  check_launch("fold_parts");
}

/// Calls f with the run length (N or 1) and the team that suit rows of `channels`: f(integral_constant<N>, Team).
template <int N, class F>
void by_row_shape(std::int64_t channels, bool vectors, const F& f) {
  const auto with_team = [&](auto length) {
    if (channels <= warp_channels) f(length, Team<32>{});
    else f(length, Team<team_block>{});
  };
  if (vectors && channels % N == 0) with_team(std::integral_constant<int, N>{});
  else with_team(std::integral_constant<int, 1>{});
}

}  // namespace tessera::kernels::cuda
