// SPDX-License-Identifier: Apache-2.0
#pragma once
// The terms of the balance loss, for host and device. Doubles: no compiler fuses two operations (--fmad=false,
// -ffp-contract=off).

#include <cmath>

#include "kernels/balance.hpp"

namespace tessera::kernels {

/// (layers, 2, E): counts of choices, sums of probabilities.
struct RouterTable {
  const double* all;
  std::int64_t layers, experts;

  /// Sum over layers [first, first + count) of the counts (which = 0) or probabilities (1) of expert e.
  TESSERA_HD double total(std::int64_t first, std::int64_t count, int which, std::int64_t e) const {
    double sum = 0;
    for (std::int64_t layer = first; layer < first + count; ++layer) sum += all[(2 * layer + which) * experts + e];
    return sum;
  }
};
[[nodiscard]] inline RouterTable table_of(const TensorView& router) {
  return {router.as<double>(), router.shape[0], router.shape[2]};
}

/// The layers that loss i of BalanceSumsArgs::sums covers.
struct LayerRange {
  std::int64_t first, count;
};
TESSERA_HD LayerRange layers_of(std::int64_t i, std::int64_t layers) {
  return i == 0 ? LayerRange{0, layers} : LayerRange{i - 1, 1};
}

/// f_e·P_e over `rows` tokens of these layers.
TESSERA_HD double balance_term(const RouterTable& table, LayerRange layers, double rows, std::int64_t e) {
  return table.total(layers.first, layers.count, 0, e) / rows * (table.total(layers.first, layers.count, 1, e) / rows);
}

TESSERA_HD double balance_slope(const RouterTable& table, double factor, double rows, std::int64_t e) {
  return factor * static_cast<double>(table.experts) * table.total(0, table.layers, 0, e) / rows / rows;
}

/// 0 if a logit was not finite: the step's loss and norm report that.
TESSERA_HD std::int64_t balance_units(double loss, double weight, double unit) {
  const double units = weight * loss / unit;
  return units > -9e18 && units < 9e18 ? llround(units) : 0;
}

}  // namespace tessera::kernels
