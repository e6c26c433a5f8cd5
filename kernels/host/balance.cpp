// SPDX-License-Identifier: Apache-2.0
// The balance loss on the host.
#include "kernels/balance.hpp"

#include <algorithm>

#include "kernels/balance_formulas.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

double balance_loss(const TensorView& router, std::int64_t tokens, int layer) {
  const RouterTable table = table_of(router);
  const LayerRange layers = layers_of(layer + 1, table.layers);
  const double rows = static_cast<double>(tokens) * static_cast<double>(layers.count);
  double sum = 0;
  for (std::int64_t e = 0; e < table.experts; ++e) sum += balance_term(table, layers, rows, e);
  return static_cast<double>(table.experts) * sum;
}

namespace host {
namespace {

struct Counted {
  std::int64_t tokens = 0;  // routed and counted
  double share = 0;         // valid tokens, or samples
};

Counted count(const TokenFields& fields) {
  const PaddingMap padding = padding_of(fields);
  const auto* targets = fields.targets.as<std::int32_t>();
  std::int64_t tokens = fields.targets.numel(), valid = 0;
  for (std::int64_t i = 0; i < fields.targets.numel(); ++i) {
    tokens -= padding.has(i) ? 1 : 0;
    valid += targets[i] != ignore_index ? 1 : 0;
  }
  return {tokens, static_cast<double>(valid)};
}

Counted count(const BalanceArgs& of) {
  if (of.counted) {
    const auto* all = of.counted.as<double>();
    return {static_cast<std::int64_t>(all[0]), all[1]};
  }
  Counted counted = count(of.fields);
  if (of.samples > 0) counted.share = static_cast<double>(of.samples);
  return counted;
}

}  // namespace

void count_tokens(const CountTokensArgs& args) {
  const Counted counted = count(args.fields);
  args.out.as<double>()[0] = static_cast<double>(counted.tokens);
  args.out.as<double>()[1] = counted.share;
}

void sum_statistics(const SumStatisticsArgs& args) {
  const auto* parts = args.parts.as<double>();
  auto* const sum = args.sum.as<double>();
  const std::int64_t n = args.sum.numel();
  std::copy_n(parts, n, sum);
  for (std::int64_t p = 1; p < args.parts.shape[0]; ++p)
    for (std::int64_t i = 0; i < n; ++i) sum[i] += parts[p * n + i];
}

void balance_gradient(const BalanceGradientArgs& args) {
  const RouterTable table = table_of(args.of.router);
  const Counted counted = count(args.of);
  const double factor = args.coefficient * (counted.share * *args.of.loss_scale);
  const double rows = static_cast<double>(counted.tokens) * static_cast<double>(table.layers);
  for (std::int64_t e = 0; e < table.experts; ++e) args.out.as<double>()[e] = balance_slope(table, factor, rows, e);
}

void add_balance_losses(const BalanceSumsArgs& args) {
  const Counted counted = count(args.of);
  const double weight = counted.share * *args.of.loss_scale / *args.gradient_scale;
  for (int i = 0; i <= static_cast<int>(args.of.router.shape[0]); ++i)
    args.sums[i] += balance_units(balance_loss(args.of.router, counted.tokens, i - 1), weight, args.unit);
}

}  // namespace host
}  // namespace tessera::kernels
