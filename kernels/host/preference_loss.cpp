// SPDX-License-Identifier: Apache-2.0
// Losses of pairs and of labelled sequences on the host.
#include "kernels/preference_loss.hpp"

#include <algorithm>
#include <iterator>

#include "kernels/host/ops.hpp"
#include "kernels/preference_formulas.hpp"

namespace tessera::kernels::host {
namespace {

SequenceSums sums_of(const SequenceRows& rows, std::int64_t row) {
  const std::int64_t n = rows.targets.shape[1];
  const auto* log_probs = rows.log_probs.as<float>() + row * n;
  const auto* targets = rows.targets.as<std::int32_t>() + row * n;
  SequenceSums sums{};
  for (std::int64_t t = 0; t < n; ++t) {
    if (targets[t] == ignore_index) continue;
    sums.policy += static_cast<double>(log_probs[t]);
    ++sums.targets;
  }
  return sums;
}

/// The same of a pair with its reference.
struct PairSums {
  SequenceSums chosen, rejected;
};
PairSums pair_of(const SequenceRows& rows, const TensorView& reference, std::int64_t row) {
  PairSums pair{sums_of(rows, row), sums_of(rows, row + 1)};
  if (!reference) return pair;
  pair.chosen.reference = reference.as<double>()[row];
  pair.rejected.reference = reference.as<double>()[row + 1];
  return pair;
}

PairTerms terms_of(const PreferenceSpec& spec, const SequenceSums& chosen, const SequenceSums& rejected) {
  switch (spec.form()) {
    case PairForm::ratio: return pair_terms<PairForm::ratio>(spec, chosen, rejected);
    case PairForm::diverging: return pair_terms<PairForm::diverging>(spec, chosen, rejected);
    case PairForm::sorted: return pair_terms<PairForm::sorted>(spec, chosen, rejected);
    default: return pair_terms<PairForm::margin>(spec, chosen, rejected);
  }
}

}  // namespace

void preference_loss(const PreferenceLossArgs& args) {
  const std::int64_t rows = args.rows.targets.shape[0], n = args.rows.targets.shape[1];
  for (std::int64_t row = 0; row < rows; row += 2) {
    auto [chosen, rejected] = pair_of(args.rows, args.reference_sums, row);
    if (args.matched) {
      chosen.matched = args.matched.as<double>()[row];
      rejected.matched = args.matched.as<double>()[row + 1];
    }
    const PairTerms terms = terms_of(args.spec, chosen, rejected);
    if (args.sums != nullptr) {
      args.sums->loss.add(args.factor * terms.loss);
      args.sums->tokens += args.is_further ? 0 : 1;
      args.sums->correct += !args.is_further && terms.chosen_reward > terms.rejected_reward ? 1 : 0;
    }
    if (args.metrics != nullptr) {
      const double values[] = {terms.chosen_reward, terms.rejected_reward, terms.chosen_logp, terms.rejected_logp,
                               -chosen.policy};
      for (int i = 0; i < static_cast<int>(std::size(values)); ++i) args.metrics[i] += preference_units(values[i]);
      args.metrics[static_cast<int>(PreferenceSum::nll_targets)] += chosen.targets;
    }
    if (!args.weights) continue;
    const double nll = args.spec.nll == 0 ? 0 : args.spec.nll * static_cast<double>(args.nll_weights.as<float>()[row]);
    float* const weights = args.weights.as<float>() + row * n;
    const auto of_chosen = static_cast<float>(-args.factor * terms.chosen_slope + nll);
    const auto of_rejected = static_cast<float>(-args.factor * terms.rejected_slope);
    for (std::int64_t t = 0; t < n; ++t) {
      weights[t] = args.is_further ? weights[t] + of_chosen : of_chosen;
      weights[n + t] = args.is_further ? weights[n + t] + of_rejected : of_rejected;
    }
  }
}

void labelled_loss(const LabelledLossArgs& args) {
  const std::int64_t n = args.rows.targets.shape[1];
  for (std::int64_t row = 0; row < args.rows.targets.shape[0]; ++row) {
    SequenceSums sums = sums_of(args.rows, row);
    if (args.reference_sums) sums.reference = args.reference_sums.as<double>()[row];
    const auto label = static_cast<double>(args.labels.as<float>()[row]);
    const LabelledTerms terms = labelled_terms(args.spec, sums, label, args.kl.as<double>()[row]);
    if (args.sums != nullptr && label != 0) {
      args.sums->loss.add(terms.loss);
      args.sums->tokens += 1;
    }
    if (args.metrics != nullptr)
      for (int i = 0; i < num_preference_sums; ++i)
        args.metrics[i] += preference_units(labelled_value(static_cast<PreferenceSum>(i), terms, sums, label));
    if (args.weights) std::fill_n(args.weights.as<float>() + row * n, n, static_cast<float>(-terms.slope));
  }
}

void sum_sequences(const SumSequencesArgs& args) {
  for (std::int64_t row = 0; row < args.rows.targets.shape[0]; ++row)
    args.sums.as<double>()[row] = sums_of(args.rows, row).policy;
}

void match_sorted(const MatchSortedArgs& args) {
  const std::int64_t pairs = args.rows.targets.shape[0] / 2;
  double *const first = args.scratch.as<double>(), *const second = first + pairs, *const sorted = second + pairs;
  for (std::int64_t k = 0; k < pairs; ++k) {
    const PairSums pair = pair_of(args.rows, args.reference_sums, 2 * k);
    const SortedValues values = sorted_values(args.kind, pair.chosen, pair.rejected);
    first[k] = values.first, second[k] = values.second;
  }
  for (std::int64_t k = 0; k < pairs; ++k) {
    sorted[rank_of(first, pairs, k)] = first[k];
    sorted[pairs + rank_of(second, pairs, k)] = second[k];
  }
  for (std::int64_t k = 0; k < pairs; ++k) {
    double* const matched = args.matched.as<double>() + 2 * k;
    matched[0] = sorted[pairs + rank_of(first, pairs, k)];
    matched[1] = args.kind == PreferenceKind::aot ? matched[0] : sorted[rank_of(second, pairs, k)];
  }
}

}  // namespace tessera::kernels::host
