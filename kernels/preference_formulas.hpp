// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a pair contributes to loss, sums and gradient, for host and device, in fp64.

#include <cmath>

#include "kernels/host_device.hpp"
#include "kernels/preference_loss.hpp"

namespace tessera::kernels {

/// log σ(x).
TESSERA_HD double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }
TESSERA_HD double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/// log(p / (1 - p)) of a = log p < 0. Both branches of log(1 - e^a) are exact near their end.
TESSERA_HD double log_odds(double a) {
  constexpr double log_half = -0.6931471805599453;
  return a - (a < log_half ? log1p(-exp(a)) : log(-expm1(a)));
}

/// Of a sequence: its log-probability, the reference's, and its number of targets.
struct SequenceSums {
  double policy = 0, reference = 0;
  std::int64_t targets = 0;
  double matched = 0;          // of match_sorted
  double all = 0;              // `policy` with a tail_weight of 1
  double log_sum_squares = 0;  // Σ over its targets; of weighted pairs
  TESSERA_HD double count() const { return targets > 0 ? static_cast<double>(targets) : 1.0; }
};

/// What ρ becomes, and its derivative.
struct Score {
  double value, slope;
};
TESSERA_HD Score score_of(const PreferenceSpec& spec, double ratio) {
  constexpr double log_2 = 0.6931471805599453, most = 80;
  switch (spec.divergence) {
    case Divergence::forward_kl: return {-expm1(-ratio), exp(-ratio)};
    case Divergence::js_divergence: return {log_2 + log_sigmoid(ratio), sigmoid(-ratio)};
    case Divergence::alpha_divergence: {
      const double k = spec.alpha - 1, x = k * ratio;
      return {expm1(x < most ? x : most) / k, x <= most ? exp(x) : 0.0};
    }
    default: return {ratio, 1};
  }
}

/// What the loss of a pair is multiplied by.
TESSERA_HD double pair_weight(const PreferenceSpec& spec, const SequenceSums& chosen, const SequenceSums& rejected) {
  if (!spec.weighted) return 1;
  return exp((chosen.all - chosen.log_sum_squares) / chosen.count() +
             (rejected.all - rejected.log_sum_squares) / rejected.count());
}

struct PairTerms {
  double loss;
  double chosen_reward, rejected_reward, chosen_logp, rejected_logp;
  double chosen_slope, rejected_slope;  // ∂loss/∂(log-probability of a target) of each sequence
};

/// Of a label that is wrong with the probability e.
TESSERA_HD double sigmoid_loss(double e, double z, double& slope) {
  slope = -(1 - e) * sigmoid(-z) + e * sigmoid(z);
  return -(1 - e) * log_sigmoid(z) - e * log_sigmoid(-z);
}

/// The loss of z = βΔ, and its derivative.
TESSERA_HD double margin_loss(const PreferenceSpec& spec, double z, double& slope) {
  const double e = spec.label_smoothing;
  switch (spec.kind) {
    case PreferenceKind::hinge: slope = z < 1 ? -1.0 : 0.0; return z < 1 ? 1 - z : 0.0;
    case PreferenceKind::ipo: {  // (Δ - 1/(2β))² = ((z - 1/2)/β)²
      const double d = (z - 0.5) / spec.beta;
      slope = 2 * d / spec.beta;
      return d * d;
    }
    case PreferenceKind::robust:
      slope = (-(1 - e) * sigmoid(-z) - e * sigmoid(z)) / (1 - 2 * e);
      return (-(1 - e) * log_sigmoid(z) + e * log_sigmoid(-z)) / (1 - 2 * e);
    case PreferenceKind::simpo: z -= spec.gamma; break;
    default: break;
  }
  return sigmoid_loss(e, z, slope);
}

/// A rare loss of a = βρ of the chosen and b = βρ of the rejected sequence, and its
/// derivatives.
struct RatioLoss {
  double loss, chosen_slope, rejected_slope;
};
TESSERA_HD RatioLoss rare_loss(const PreferenceSpec& spec, double a, double b) {
  const double e = spec.label_smoothing, z = a - b;
  switch (spec.kind) {
    case PreferenceKind::exo_pair: {
      const double s = sigmoid(z), r = sigmoid(-z), slope = s * r * (z + log(e) - log1p(-e));
      return {s * (log_sigmoid(z) - log1p(-e)) + r * (log_sigmoid(-z) - log(e)), slope, -slope};
    }
    case PreferenceKind::discopop: {
      const double t = 1 / spec.discopop_tau, m = sigmoid(t * z), n = sigmoid(-t * z), l = log_sigmoid(z);
      const double x = exp(log_sigmoid(t * z) - z);  // e^(-z)·m, whose factors may be infinite and 0
      const double slope = -sigmoid(-z) * n + l * m * n * t + x * (n * t - 1);
      return {x - l * n, slope, -slope};
    }
    case PreferenceKind::nca_pair:
      return {-log_sigmoid(a) - 0.5 * log_sigmoid(-a) - 0.5 * log_sigmoid(-b), 0.5 * sigmoid(a) - sigmoid(-a),
              0.5 * sigmoid(b)};
    case PreferenceKind::bco_pair: return {-log_sigmoid(a) - log_sigmoid(-b), -sigmoid(-a), sigmoid(b)};
    case PreferenceKind::sppo_hard: {
      const double x = (a - 0.5) / spec.beta, y = (b + 0.5) / spec.beta;
      return {x * x + y * y, 2 * x / spec.beta, 2 * y / spec.beta};
    }
    case PreferenceKind::apo_zero:
      return {sigmoid(-a) + sigmoid(b), -sigmoid(a) * sigmoid(-a), sigmoid(b) * sigmoid(-b)};
    case PreferenceKind::apo_down: {
      const double slope = sigmoid(z) * sigmoid(-z);
      return {sigmoid(a) + sigmoid(-z), sigmoid(a) * sigmoid(-a) - slope, slope};
    }
    default: return {0, 0, 0};
  }
}

/// How many of n values are before the k-th one.
TESSERA_HD std::int64_t rank_of(const double* values, std::int64_t n, std::int64_t k) {
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < n; ++i) before += values[i] < values[k] || (values[i] == values[k] && i < k) ? 1 : 0;
  return before;
}

/// What match_sorted sorts of a pair: of aot the margins of model and reference, of aot_unpaired the two ρ.
struct SortedValues {
  double first, second;
};
TESSERA_HD SortedValues sorted_values(PreferenceKind kind, const SequenceSums& chosen, const SequenceSums& rejected) {
  if (kind == PreferenceKind::aot) return {chosen.policy - rejected.policy, chosen.reference - rejected.reference};
  return {chosen.policy - chosen.reference, rejected.policy - rejected.reference};
}

/// Loss and slopes of aot and aot_unpaired.
TESSERA_HD void sorted_terms(const PreferenceSpec& spec, const SequenceSums& chosen, const SequenceSums& rejected,
                             PairTerms& t) {
  const SortedValues own = sorted_values(spec.kind, chosen, rejected);
  double of_chosen = 0, of_rejected = 0;
  t.loss = sigmoid_loss(spec.label_smoothing, spec.beta * (own.first - chosen.matched), of_chosen);
  of_rejected = of_chosen;
  if (spec.kind == PreferenceKind::aot_unpaired)
    (void)sigmoid_loss(spec.label_smoothing, spec.beta * (rejected.matched - own.second), of_rejected);
  t.chosen_slope = of_chosen * spec.beta;
  t.rejected_slope = -of_rejected * spec.beta;
}

/// `form`: spec.form(). Apart, so that a device's kernel has the registers of one of them.
template <PairForm form>
TESSERA_HD PairTerms pair_terms(const PreferenceSpec& spec, const SequenceSums& chosen, const SequenceSums& rejected) {
  PairTerms t;
  const double nc = spec.mean ? chosen.count() : 1.0, nr = spec.mean ? rejected.count() : 1.0;
  const double mc = spec.rewards_mean ? chosen.count() : 1.0, mr = spec.rewards_mean ? rejected.count() : 1.0;
  const double rc = chosen.policy - chosen.reference, rr = rejected.policy - rejected.reference;
  t.chosen_reward = spec.beta * (rc / mc);
  t.rejected_reward = spec.beta * (rr / mr);
  t.chosen_logp = chosen.policy / mc;
  t.rejected_logp = rejected.policy / mr;
  if constexpr (form == PairForm::sorted) {
    sorted_terms(spec, chosen, rejected, t);
    return t;
  }
  if constexpr (form == PairForm::diverging) {
    const Score c = score_of(spec, rc), r = score_of(spec, rr);
    const double z = spec.beta * (c.value / nc) - spec.beta * (r.value / nr);
    double slope = 0;
    t.loss = margin_loss(spec, z, slope);
    t.chosen_slope = slope * spec.beta / nc * c.slope;
    t.rejected_slope = -slope * spec.beta / nr * r.slope;
    return t;
  }
  if constexpr (form == PairForm::ratio) {
    const RatioLoss of = rare_loss(spec, spec.beta * (rc / nc), spec.beta * (rr / nr));
    t.loss = of.loss;
    t.chosen_slope = of.chosen_slope * spec.beta / nc;
    t.rejected_slope = of.rejected_slope * spec.beta / nr;
    return t;
  }
  if (spec.kind == PreferenceKind::orpo) {
    const double ac = rc / nc, ar = rr / nr, odds = log_odds(ac) - log_odds(ar);
    t.loss = -spec.beta * log_sigmoid(odds);
    const double slope = -spec.beta * sigmoid(-odds);  // d log_odds(a)/da = 1/(1 - e^a)
    t.chosen_slope = slope / -expm1(ac) / nc;
    t.rejected_slope = -slope / -expm1(ar) / nr;
    return t;
  }
  double slope = 0;
  t.loss = margin_loss(spec, spec.beta * (rc / nc - rr / nr), slope);
  t.chosen_slope = slope * spec.beta / nc;
  t.rejected_slope = -slope * spec.beta / nr;
  return t;
}

struct LabelledTerms {
  double loss, reward;
  double slope;  // ∂loss/∂(log-probability of a target)
};

/// label: 1 desirable, -1 undesirable, 0 none, whose loss is 0; kl: z₀.
TESSERA_HD LabelledTerms labelled_terms(const PreferenceSpec& spec, const SequenceSums& row, double label, double kl) {
  const double ratio = row.policy - row.reference;
  const double z = spec.beta * label * (ratio - (spec.kind == PreferenceKind::kto ? kl : 0.0));
  const double weight = label > 0 ? spec.desirable_weight : label < 0 ? spec.undesirable_weight : 0.0;
  return {weight * sigmoid(-z), spec.beta * ratio, -weight * label * spec.beta * sigmoid(z) * sigmoid(-z)};
}

/// What a row adds to a sum; `terms`: its own.
TESSERA_HD double labelled_value(PreferenceSum sum, const LabelledTerms& terms, const SequenceSums& row, double label) {
  switch (sum) {
    case PreferenceSum::chosen_reward: return label > 0 ? terms.reward : 0.0;
    case PreferenceSum::rejected_reward: return label < 0 ? terms.reward : 0.0;
    case PreferenceSum::chosen_logp: return label > 0 ? row.policy : 0.0;
    case PreferenceSum::rejected_logp: return label < 0 ? row.policy : 0.0;
    case PreferenceSum::kl: return label == 0 ? row.policy - row.reference : 0.0;
    case PreferenceSum::chosen_rows: return label > 0 ? preference_unit : 0.0;
    case PreferenceSum::rejected_rows: return label < 0 ? preference_unit : 0.0;
    default: return 0.0;
  }
}

/// 0 if a logit was not finite: the step's loss and norm report that.
TESSERA_HD std::int64_t preference_units(double value) {
  const double units = value / preference_unit;
  return units > -9e18 && units < 9e18 ? llround(units) : 0;
}

}  // namespace tessera::kernels
