// SPDX-License-Identifier: Apache-2.0
#pragma once
// The binary-counter tree of kernels/reduce.hpp in the registers of a thread. Only for .cu files.

namespace tessera::kernels::cuda {

/// sum = part 0 + part 1 + …, `parts` parts of N numbers, fewer than 2^Levels; load(i, v) sets v to part i. Level l
/// holds the sum of 2^l parts. Indices are constants, so the levels stay in registers.
template <int N, int Levels, class Load>
__device__ __forceinline__ void binary_counter_sum(int parts, float (&sum)[N], const Load& load) {
  float level[Levels][N];
  for (int i = 0; i < parts; ++i) {
    float carry[N];
    load(i, carry);
    bool carried = true;
#pragma unroll
    for (int l = 0; l < Levels; ++l) {
      const bool full = (i >> l & 1) != 0;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (carried && full) carry[k] = level[l][k] + carry[k];
        else if (carried) level[l][k] = carry[k];
      }
      carried = carried && full;
    }
  }
  // The remaining subtrees, from the smallest to the largest.
  bool first = true;
#pragma unroll
  for (int l = 0; l < Levels; ++l) {
    if ((parts >> l & 1) == 0) continue;
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = first ? level[l][k] : level[l][k] + sum[k];
    first = false;
  }
}

}  // namespace tessera::kernels::cuda
