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
  const double* loss_scale;
};

Fields fields_of(const BalanceArgs& of) {
  return {padding_of(of.fields), data_of<std::int32_t>(of.fields.targets), of.fields.targets.numel(), of.samples,
          of.loss_scale};
}

/// Counted tokens and the weight of the micro-batch, for every thread of the block.
__device__ double count(const Fields& w, std::int64_t& tokens) {
  std::int64_t padding = 0, valid = 0;
  for (std::int64_t i = threadIdx.x; i < w.numel; i += group_block) {
    padding += w.padding.has(i) ? 1 : 0;
    valid += w.targets[i] != ignore_index ? 1 : 0;
  }
  tokens = w.numel - ThreadGroup<group_block>::sum(padding);
  const std::int64_t targets = ThreadGroup<group_block>::sum(valid);
  return static_cast<double>(w.samples > 0 ? w.samples : targets) * *w.loss_scale;
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
