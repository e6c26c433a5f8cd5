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
  SequenceSums sums{0, 0, 0};
  for (std::int64_t t = 0; t < n; ++t) {
    if (targets[t] == ignore_index) continue;
    sums.policy += static_cast<double>(log_probs[t]);
    ++sums.targets;
  }
  return sums;
}

}  // namespace

void preference_loss(const PreferenceLossArgs& args) {
  const std::int64_t rows = args.rows.targets.shape[0], n = args.rows.targets.shape[1];
  const double* const reference = args.reference_sums ? args.reference_sums.as<double>() : nullptr;
  for (std::int64_t row = 0; row < rows; row += 2) {
    SequenceSums chosen = sums_of(args.rows, row), rejected = sums_of(args.rows, row + 1);
    if (reference != nullptr) chosen.reference = reference[row], rejected.reference = reference[row + 1];
    const PairTerms terms = args.spec.rare() ? pair_terms<true>(args.spec, chosen, rejected)
                                             : pair_terms<false>(args.spec, chosen, rejected);
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

}  // namespace tessera::kernels::host
