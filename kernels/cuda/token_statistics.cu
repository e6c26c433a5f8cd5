// SPDX-License-Identifier: Apache-2.0
// The loss of a head whose vocabulary is in parts: the statistics of a token's parts, merged in their order.
#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/loss_sums.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels::cuda {
namespace {

struct MergedRows {
  const TokenStatistics* parts;  // (num_parts, rows)
  const std::int32_t* targets;
  const float* weights;      // null: 1
  SumCounters* sums;         // null: not wanted
  const double* loss_scale;  // null: no gradient
  TokenStatistics* merged;   // null: not wanted
  std::int64_t rows, num_parts;
};

constexpr int merge_threads = 128;

__global__ void __launch_bounds__(merge_threads) merge_statistics_kernel(const MergedRows r) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * merge_threads + threadIdx.x;
  if (row >= r.rows) return;
  TokenStatistics all{-INFINITY, 0, -INFINITY, 0};
  if (r.targets[row] != ignore_index) {
    bool correct = false;
    for (std::int64_t p = 0; p < r.num_parts; ++p) {
      const TokenStatistics part = r.parts[p * r.rows + row];
      if (part.max > all.max) all.max = part.max, correct = part.factor == 1;
      if (part.target > all.target) all.target = part.target;
    }
#pragma unroll 1  // several at once have too few registers
    for (std::int64_t at = row; at < r.num_parts * r.rows; at += r.rows)
      all.sum += r.parts[at].sum * exp(r.parts[at].max - all.max);
    const double weight = r.weights ? static_cast<double>(r.weights[row]) : 1.0;
    if (r.sums) add_loss(r.sums, weight * (all.max + log(all.sum) - all.target), correct);
    if (r.loss_scale) all.factor = *r.loss_scale * weight;
  }
  if (r.merged) r.merged[row] = all;
}

}  // namespace

void merge_token_statistics(const MergeTokenStatisticsArgs& args, StreamView stream) {
  const std::int64_t n = args.targets.numel();
  if (n == 0) return;
  const MergedRows rows{data_of<TokenStatistics>(args.parts),
                        data_of<std::int32_t>(args.targets),
                        args.weights ? data_of<float>(args.weights) : nullptr,
                        reinterpret_cast<SumCounters*>(args.sums),
                        args.loss_scale,
                        data_of<TokenStatistics>(args.merged),
                        n,
                        args.parts.shape[0]};
  merge_statistics_kernel<<<blocks_for(n, merge_threads), merge_threads, 0, stream_of(stream)>>>(rows);
  check_launch("merge_token_statistics");
}

}  // namespace tessera::kernels::cuda
