// SPDX-License-Identifier: Apache-2.0
// The balance loss on a device: sums over experts in the host's order, so that equal statistics give the host's bits.
#include "kernels/balance_formulas.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"

namespace tessera::kernels::cuda {
namespace {

struct Fields {
  PaddingMap padding;
  const std::int32_t* targets;
  std::int64_t numel, samples;
  const double *loss_scale, *counted;
};

Fields fields_of(const BalanceArgs& of) {
  return {padding_of(of.fields), data_of<std::int32_t>(of.fields.targets),      of.fields.targets.numel(), of.samples,
          of.loss_scale,         of.counted ? of.counted.as<double>() : nullptr};
}

struct TokenCount {
  std::int64_t tokens, valid;  // no padding; with a target
};

/// For every thread of the block.
__device__ TokenCount count(const PaddingMap& map, const std::int32_t* targets, std::int64_t numel) {
  std::int64_t padding = 0, valid = 0;
  for (std::int64_t i = threadIdx.x; i < numel; i += group_block) {
    padding += map.has(i) ? 1 : 0;
    valid += targets[i] != ignore_index ? 1 : 0;
  }
  const std::int64_t tokens = numel - ThreadGroup<group_block>::sum(padding);
  return {tokens, ThreadGroup<group_block>::sum(valid)};
}

/// Counted tokens and the weight of the micro-batch, for every thread of the block.
__device__ double count(const Fields& w, std::int64_t& tokens) {
  if (w.counted != nullptr) {
    tokens = static_cast<std::int64_t>(w.counted[0]);
    return w.counted[1] * *w.loss_scale;
  }
  const TokenCount counted = count(w.padding, w.targets, w.numel);
  tokens = counted.tokens;
  return static_cast<double>(w.samples > 0 ? w.samples : counted.valid) * *w.loss_scale;
}

__global__ void __launch_bounds__(group_block)
    count_tokens_kernel(const PaddingMap map, const std::int32_t* targets, std::int64_t numel, double* out) {
  const TokenCount counted = count(map, targets, numel);
  if (threadIdx.x != 0) return;
  out[0] = static_cast<double>(counted.tokens);
  out[1] = static_cast<double>(counted.valid);
}

__global__ void __launch_bounds__(group_block)
    sum_statistics_kernel(const double* parts, std::int64_t num_parts, std::int64_t n, double* sum) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * group_block + threadIdx.x;
  if (i >= n) return;
  double all = parts[i];
  for (std::int64_t p = 1; p < num_parts; ++p) all += parts[p * n + i];
  sum[i] = all;
}

__global__ void __launch_bounds__(group_block)
    gradient_kernel(const RouterTable table, const Fields fields, double coefficient, double* out) {
  std::int64_t tokens = 0;
  const double factor = coefficient * count(fields, tokens);
  const double rows = static_cast<double>(tokens) * static_cast<double>(table.layers);
  for (std::int64_t e = threadIdx.x; e < table.experts; e += group_block)
    out[e] = balance_slope(table, factor, rows, e);
}

/// One block per loss: computes the terms of all experts in parallel, then one thread adds them in order.
__global__ void __launch_bounds__(group_block)
    losses_kernel(const RouterTable table, const Fields fields, const double* gradient_scale, double unit,
                  std::int64_t* sums) {
  extern __shared__ double products[];
  std::int64_t tokens = 0;
  const double weight = count(fields, tokens) / *gradient_scale;
  const LayerRange layers = layers_of(blockIdx.x, table.layers);
  const double rows = static_cast<double>(tokens) * static_cast<double>(layers.count);
  for (std::int64_t e = threadIdx.x; e < table.experts; e += group_block)
    products[e] = balance_term(table, layers, rows, e);
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = 0;
  for (std::int64_t e = 0; e < table.experts; ++e) sum += products[e];
  sums[blockIdx.x] += balance_units(static_cast<double>(table.experts) * sum, weight, unit);
}

}  // namespace

void count_tokens(const CountTokensArgs& args, StreamView stream) {
  const TensorView& targets = args.fields.targets;
  count_tokens_kernel<<<1, group_block, 0, stream_of(stream)>>>(padding_of(args.fields), data_of<std::int32_t>(targets),
                                                                targets.numel(), args.out.as<double>());
  check_launch("count_tokens");
}

void sum_statistics(const SumStatisticsArgs& args, StreamView stream) {
  const std::int64_t n = args.sum.numel();
  sum_statistics_kernel<<<blocks_for(n, group_block), group_block, 0, stream_of(stream)>>>(
      args.parts.as<double>(), args.parts.shape[0], n, args.sum.as<double>());
  check_launch("sum_statistics");
}

void balance_gradient(const BalanceGradientArgs& args, StreamView stream) {
  gradient_kernel<<<1, group_block, 0, stream_of(stream)>>>(table_of(args.of.router), fields_of(args.of),
                                                            args.coefficient, args.out.as<double>());
  check_launch("balance_gradient");
}

void add_balance_losses(const BalanceSumsArgs& args, StreamView stream) {
  const RouterTable table = table_of(args.of.router);
  const auto bytes = static_cast<std::size_t>(table.experts) * sizeof(double);
  allow_shared(losses_kernel, bytes);
  losses_kernel<<<blocks_for(table.layers + 1, 1), group_block, bytes, stream_of(stream)>>>(
      table, fields_of(args.of), args.gradient_scale, args.unit, args.sums);
  check_launch("add_balance_losses");
}

}  // namespace tessera::kernels::cuda
