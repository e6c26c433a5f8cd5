// SPDX-License-Identifier: Apache-2.0
// Losses of pairs and of labelled sequences on the host.
#include "kernels/preference_loss.hpp"

#include <algorithm>
#include <iterator>

#include "kernels/host/ops.hpp"
#include "kernels/preference_formulas.hpp"

namespace tessera::kernels::host {
namespace {

/// The tokens of a sequence.
struct Tokens {
  std::int64_t begin, end;
};
Tokens tokens_of(const SequenceRows& rows, std::int64_t row) {
  const std::int64_t n = rows.targets.shape[1];
  if (!rows.ends) return {row * n, (row + 1) * n};
  const auto* const ends = rows.ends.as<std::int32_t>();
  return {row == 0 ? 0 : ends[row - 1], ends[row]};
}

std::int64_t num_targets(const SequenceRows& rows, Tokens in) {
  const auto* const targets = rows.targets.as<std::int32_t>();
  return in.end - in.begin - std::count(targets + in.begin, targets + in.end, ignore_index);
}

/// The first tokens that have as many targets as the other sequence of the pair; all of them, if all weigh the same.
Tokens shared_tokens(const SequenceRows& rows, std::int64_t row, double tail_weight) {
  Tokens tokens = tokens_of(rows, row);
  if (tail_weight == 1) return tokens;
  std::int64_t left = num_targets(rows, tokens_of(rows, row ^ 1));
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t)
    if (rows.targets.as<std::int32_t>()[t] != ignore_index && left-- == 0) tokens.end = t;
  return tokens;
}

SequenceSums sums_of(const SequenceRows& rows, std::int64_t row, double tail_weight) {
  const Tokens tokens = tokens_of(rows, row), shared = shared_tokens(rows, row, tail_weight);
  const auto* const log_probs = rows.log_probs.as<float>();
  const auto* const targets = rows.targets.as<std::int32_t>();
  const double* const squares = rows.log_sum_squares ? rows.log_sum_squares.as<double>() : nullptr;
  SequenceSums sums{};
  double tail = 0;
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    if (targets[t] == ignore_index) continue;
    (t < shared.end ? sums.policy : tail) += static_cast<double>(log_probs[t]);
    if (squares != nullptr) sums.log_sum_squares += squares[t];
    ++sums.targets;
  }
  sums.all = sums.policy + tail;
  sums.policy += tail_weight * tail;
  return sums;
}

/// The same of a pair with its reference.
struct PairSums {
  SequenceSums chosen, rejected;
};
PairSums pair_of(const SequenceRows& rows, const TensorView& reference, std::int64_t row, double tail_weight) {
  PairSums pair{sums_of(rows, row, tail_weight), sums_of(rows, row + 1, tail_weight)};
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

/// Cross-entropy weights of a sequence's targets: of a loss with the slope, and `nll` of the cross-entropy of all.
void write_weights(const PreferenceLossArgs& args, std::int64_t row, double slope, double nll) {
  const Tokens tokens = tokens_of(args.rows, row), shared = shared_tokens(args.rows, row, args.spec.tail_weight);
  float* const weights = args.weights.as<float>();
  const auto of_shared = static_cast<float>(-slope + nll),
             of_tail = static_cast<float>(-slope * args.spec.tail_weight + nll);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t)
    weights[t] = (args.is_further ? weights[t] : 0.0F) + (t < shared.end ? of_shared : of_tail);
}

}  // namespace

void preference_loss(const PreferenceLossArgs& args) {
  for (std::int64_t row = 0; row < args.rows.count(); row += 2) {
    auto [chosen, rejected] = pair_of(args.rows, args.reference_sums, row, args.spec.tail_weight);
    if (args.matched) {
      chosen.matched = args.matched.as<double>()[row];
      rejected.matched = args.matched.as<double>()[row + 1];
    }
    const PairTerms terms = terms_of(args.spec, chosen, rejected);
    const double factor = args.factor * pair_weight(args.spec, chosen, rejected);
    if (args.sums != nullptr) {
      args.sums->loss.add(factor * terms.loss);
      args.sums->tokens += args.is_further ? 0 : 1;
      args.sums->correct += !args.is_further && terms.chosen_reward > terms.rejected_reward ? 1 : 0;
    }
    if (args.metrics != nullptr) {
      const double values[] = {terms.chosen_reward, terms.rejected_reward, terms.chosen_logp, terms.rejected_logp,
                               -chosen.all};
      for (int i = 0; i < static_cast<int>(std::size(values)); ++i) args.metrics[i] += preference_units(values[i]);
      args.metrics[static_cast<int>(PreferenceSum::nll_targets)] += chosen.targets;
    }
    if (!args.weights) continue;
    const double nll = args.spec.nll == 0 ? 0 : args.spec.nll * static_cast<double>(args.nll_weights.as<float>()[row]);
    write_weights(args, row, factor * terms.chosen_slope, nll);
    write_weights(args, row + 1, factor * terms.rejected_slope, 0);
  }
}

void labelled_loss(const LabelledLossArgs& args) {
  for (std::int64_t row = 0; row < args.rows.count(); ++row) {
    SequenceSums sums = sums_of(args.rows, row, 1);
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
    const Tokens tokens = tokens_of(args.rows, row);
    if (args.weights)
      std::fill(args.weights.as<float>() + tokens.begin, args.weights.as<float>() + tokens.end,
                static_cast<float>(-terms.slope));
  }
}

void sum_sequences(const SumSequencesArgs& args) {
  for (std::int64_t row = 0; row < args.rows.count(); ++row)
    args.sums.as<double>()[row] = sums_of(args.rows, row, args.tail_weight).policy;
}

void match_sorted(const MatchSortedArgs& args) {
  const std::int64_t pairs = args.rows.count() / 2;
  double *const first = args.scratch.as<double>(), *const second = first + pairs, *const sorted = second + pairs;
  for (std::int64_t k = 0; k < pairs; ++k) {
    const PairSums pair = pair_of(args.rows, args.reference_sums, 2 * k, args.tail_weight);
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
