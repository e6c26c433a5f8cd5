// SPDX-License-Identifier: Apache-2.0
// Finite differences in double: what every module should pass before it is trained.
#include "gradient_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "recurrent_block.hpp"

namespace recurrent {
namespace {

using Numbers = std::vector<double>;

Numbers some_numbers(std::int64_t count, double scale, unsigned seed) {
  Numbers v(static_cast<std::size_t>(count));
  for (auto& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = scale * (static_cast<double>(seed >> 8) / double(1 << 23) - 1.0);
  }
  return v;
}

/// The block alone on one batch, with Σ y ⊙ weights as its loss.
struct Bench {
  static constexpr std::int64_t B = 2, T = 5, C = 6;
  models::BatchShape shape{B, T};
  std::vector<tessera::ParamSpec> specs;
  RecurrentBlock block{"block", C, specs};
  std::vector<Numbers> params, dparams;
  Numbers x = some_numbers(B * T * C, 1, 1), y = x, dy = some_numbers(B * T * C, 1, 2);
  // 64-byte aligned scratch.
  std::vector<double> saved = std::vector<double>(block.saved_bytes(shape, DType::f64) / 8 + 8);
  std::vector<double> workspace =
      std::vector<double>(block.workspace_bytes(shape, DType::f64, models::Phase::train) / 8 + 8);

  Bench() {
    for (const auto& spec : specs) {
      params.push_back(some_numbers(spec.numel(), 0.7, static_cast<unsigned>(params.size()) + 3));
      dparams.push_back(Numbers(params.back().size(), 1e9));  // must be overwritten
    }
  }
  static TensorView aligned(std::vector<double>& v) {
    auto* p = reinterpret_cast<std::uint8_t*>((reinterpret_cast<std::uintptr_t>(v.data()) + 63) / 64 * 64);
    return {p, {static_cast<std::int64_t>(v.size() - 8) * 8}};
  }
  std::vector<TensorView> views(std::vector<Numbers>& values) const {
    std::vector<TensorView> list;
    for (std::size_t i = 0; i < values.size(); ++i) list.emplace_back(values[i].data(), specs[i].shape);
    return list;
  }
  TensorView rows(Numbers& v) const { return {v.data(), {B, T, C}}; }

  double loss() {
    const auto p = views(params);
    block.forward({.phase = models::Phase::train,
                   .shape = shape,
                   .params = p,
                   .x = rows(x),
                   .y = rows(y),
                   .saved = aligned(saved),
                   .workspace = aligned(workspace)});
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  }
  /// Gradients of loss(); returns that of x.
  Numbers gradient() {
    (void)loss();
    const auto p = views(params), dp = views(dparams);
    const std::vector<std::uint8_t> overwrite(p.size(), 0);
    Numbers dx = dy;
    block.backward({.shape = shape,
                    .params = p,
                    .dparams = dp,
                    .accumulate = overwrite,
                    .x = rows(x),
                    .saved = aligned(saved),
                    .workspace = aligned(workspace),
                    .dy = rows(dx),
                    .dx = rows(dx)});
    return dx;
  }
};

double worst_of(Bench& bench, Numbers& values, const Numbers& gradient) {
  constexpr double h = 1e-5;
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double keep = values[i];
    values[i] = keep + h;
    const double up = bench.loss();
    values[i] = keep - h;
    const double down = bench.loss();
    values[i] = keep;
    worst = std::max(worst, std::abs((up - down) / (2 * h) - gradient[i]) / std::max(1.0, std::abs(gradient[i])));
  }
  return worst;
}

}  // namespace

double gradient_check() {
  Bench bench;
  const Numbers dx = bench.gradient();
  double worst = worst_of(bench, bench.x, dx);
  std::printf("%-20s %.1e\n", "x", worst);
  for (std::size_t p = 0; p < bench.params.size(); ++p) {
    const double of_this = worst_of(bench, bench.params[p], bench.dparams[p]);
    std::printf("%-20s %.1e\n", bench.specs[p].name.c_str(), of_this);
    worst = std::max(worst, of_this);
  }
  return worst;
}

}  // namespace recurrent
