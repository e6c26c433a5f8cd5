// SPDX-License-Identifier: Apache-2.0
#pragma once
// linear_cross_entropy by its formula in double.

#include "kernels/linear_cross_entropy.hpp"

#include "reference.hpp"

namespace tessera::kernels {

using Vector = std::vector<double>;
using Targets = std::vector<std::int32_t>;
using Weights = std::vector<float>;  // of rows; empty: 1

/// n rows of x, c columns, v rows of the weight.
struct Case {
  std::int64_t n, c, v;
};

/// Of ten targets, `ignored_of_ten` are ignore_index on average.
inline Targets random_targets(const Case& s, std::int64_t ignored_of_ten) {
  Targets t(static_cast<std::size_t>(s.n));
  for (std::size_t i = 0; i < t.size(); ++i) {
    t[i] = static_cast<std::int64_t>(10 * uniform(20, i)) < ignored_of_ten
               ? ignore_index
               : static_cast<std::int32_t>(uniform(21, i) * static_cast<double>(s.v));
  }
  return t;
}

/// Gradients and sums of a Case.
struct Reference {
  Vector dx, dweight;
  double loss = 0;
  std::int64_t tokens = 0, correct = 0;
};

inline Reference reference(const Case& s, const Vector& x, const Vector& w, const Targets& targets, double scale,
                           const Weights& weights = {}, const LogitRules& rules = {}) {
  Reference r{Vector(x.size()), Vector(w.size())};
  for (std::int64_t i = 0; i < s.n; ++i) {
    const auto target = targets[static_cast<std::size_t>(i)];
    if (target == ignore_index) continue;
    const double weight = weights.empty() ? 1 : static_cast<double>(weights[static_cast<std::size_t>(i)]);
    Vector logits(static_cast<std::size_t>(s.v)), slopes(logits.size(), rules.scale);
    for (std::int64_t j = 0; j < s.v; ++j) {
      for (std::int64_t c = 0; c < s.c; ++c)
        logits[static_cast<std::size_t>(j)] +=
            x[static_cast<std::size_t>(i * s.c + c)] * w[static_cast<std::size_t>(j * s.c + c)];
    }
    for (std::size_t j = 0; j < logits.size(); ++j) {
      logits[j] *= rules.scale;
      if (rules.soft_cap == 0) continue;
      const double tangent = std::tanh(logits[j] / rules.soft_cap);
      logits[j] = rules.soft_cap * tangent;
      slopes[j] *= 1 - tangent * tangent;
    }
    const auto largest = std::max_element(logits.begin(), logits.end());
    const double max = *largest;
    r.correct += largest - logits.begin() == target ? 1 : 0;
    r.tokens += 1;
    double sum = 0;
    const double target_logit = logits[static_cast<std::size_t>(target)];
    for (double& l : logits) sum += l = std::exp(l - max);
    r.loss += weight * (max + std::log(sum) - target_logit);
    for (std::int64_t j = 0; j < s.v; ++j) {
      const double d = weight * scale * slopes[static_cast<std::size_t>(j)] *
                       (logits[static_cast<std::size_t>(j)] / sum - (j == target ? 1 : 0));
      for (std::int64_t c = 0; c < s.c; ++c) {
        r.dx[static_cast<std::size_t>(i * s.c + c)] += d * w[static_cast<std::size_t>(j * s.c + c)];
        r.dweight[static_cast<std::size_t>(j * s.c + c)] += d * x[static_cast<std::size_t>(i * s.c + c)];
      }
    }
  }
  return r;
}

}  // namespace tessera::kernels
