// SPDX-License-Identifier: Apache-2.0
// Losses of pairs and of labelled sequences on a device: a block per pair, or per sequence. Sums over tokens by a fixed
// tree, which padding at the end of a row does not change.
#include "kernels/cuda/loss_sums.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/preference_formulas.hpp"

namespace tessera::kernels::cuda {
namespace {

struct SequenceRowsOnDevice {
  const float* log_probs;
  const std::int32_t* targets;
  std::int64_t tokens;
};

SequenceRowsOnDevice rows_of(const SequenceRows& rows) {
  return {data_of<float>(rows.log_probs), data_of<std::int32_t>(rows.targets), rows.targets.shape[1]};
}

/// For every thread of the block.
__device__ SequenceSums sums_of(const SequenceRowsOnDevice& rows, std::int64_t row) {
  const std::int64_t begin = row * rows.tokens;
  double sum = 0;
  std::int64_t targets = 0;
  for (std::int64_t t = threadIdx.x; t < rows.tokens; t += group_block) {
    if (rows.targets[begin + t] == ignore_index) continue;
    sum += static_cast<double>(rows.log_probs[begin + t]);
    ++targets;
  }
  SequenceSums sums{};
  sums.policy = ThreadGroup<group_block>::sum(sum);
  sums.targets = ThreadGroup<group_block>::sum(targets);
  return sums;
}

struct Pairs {
  PreferenceSpec spec;
  SequenceRowsOnDevice rows;
  const double* reference;   // (rows); null: 0
  const double* matched;     // (rows); null: no pairs are sorted
  const float* nll_weights;  // (rows); null: no cross-entropy
  float* weights;            // (rows, tokens); null: not wanted
  SumCounters* sums;         // null: not wanted
  std::int64_t* metrics;     // null: not wanted
  double factor;
  bool is_further;
};

__device__ void add_integer(std::int64_t* to, std::int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

template <PairForm form>
__global__ void __launch_bounds__(group_block) pairs_kernel(const Pairs p) {
  const std::int64_t row = 2 * static_cast<std::int64_t>(blockIdx.x);
  SequenceSums chosen = sums_of(p.rows, row);
  SequenceSums rejected = sums_of(p.rows, row + 1);
  if (p.reference) {
    chosen.reference = p.reference[row];
    rejected.reference = p.reference[row + 1];
  }
  if (form == PairForm::sorted) {
    chosen.matched = p.matched[row];
    rejected.matched = p.matched[row + 1];
  }
  const PairTerms terms = pair_terms<form>(p.spec, chosen, rejected);
  if (threadIdx.x == 0) {
    if (p.sums && p.is_further) add_term(p.sums, p.factor * terms.loss);
    else if (p.sums) add_loss(p.sums, p.factor * terms.loss, terms.chosen_reward > terms.rejected_reward);
    if (p.metrics) {
      constexpr int targets = static_cast<int>(PreferenceSum::nll_targets);
      const double values[targets] = {terms.chosen_reward, terms.rejected_reward, terms.chosen_logp,
                                      terms.rejected_logp, -chosen.policy};
#pragma unroll
      for (int i = 0; i < targets; ++i) add_integer(p.metrics + i, preference_units(values[i]));
      add_integer(p.metrics + targets, chosen.targets);
    }
  }
  if (!p.weights) return;
  const double nll = p.nll_weights ? p.spec.nll * static_cast<double>(p.nll_weights[row]) : 0.0;
  const auto of_chosen = static_cast<float>(-p.factor * terms.chosen_slope + nll);
  const auto of_rejected = static_cast<float>(-p.factor * terms.rejected_slope);
  float* const weights = p.weights + row * p.rows.tokens;
  for (std::int64_t t = threadIdx.x; t < p.rows.tokens; t += group_block) {
    weights[t] = p.is_further ? weights[t] + of_chosen : of_chosen;
    weights[p.rows.tokens + t] = p.is_further ? weights[p.rows.tokens + t] + of_rejected : of_rejected;
  }
}

struct Labelled {
  PreferenceSpec spec;
  SequenceRowsOnDevice rows;
  const double* reference;  // (rows); null: 0
  const float* labels;      // (rows)
  const double* kl;         // (rows)
  float* weights;           // (rows, tokens); null: not wanted
  SumCounters* sums;        // null: not wanted
  std::int64_t* metrics;    // null: not wanted
};

__global__ void __launch_bounds__(group_block) labelled_kernel(const Labelled p) {
  const std::int64_t row = blockIdx.x;
  SequenceSums sums = sums_of(p.rows, row);
  if (p.reference) sums.reference = p.reference[row];
  const auto label = static_cast<double>(p.labels[row]);
  const LabelledTerms terms = labelled_terms(p.spec, sums, label, p.kl[row]);
  if (threadIdx.x == 0) {
    if (p.sums && label != 0) add_loss(p.sums, terms.loss, false);
    if (p.metrics)
      for (int i = 0; i < num_preference_sums; ++i)
        add_integer(p.metrics + i, preference_units(labelled_value(static_cast<PreferenceSum>(i), terms, sums, label)));
  }
  if (!p.weights) return;
  float* const weights = p.weights + row * p.rows.tokens;
  for (std::int64_t t = threadIdx.x; t < p.rows.tokens; t += group_block) weights[t] = static_cast<float>(-terms.slope);
}

__global__ void __launch_bounds__(group_block) sequences_kernel(const SequenceRowsOnDevice rows, double* sums) {
  const SequenceSums of = sums_of(rows, blockIdx.x);
  if (threadIdx.x == 0) sums[blockIdx.x] = of.policy;
}

struct Matching {
  PreferenceKind kind;
  std::int64_t pairs;
  const double* policy;     // (rows)
  const double* reference;  // (rows); null: 0
  double *values, *sorted;  // (rows) each; `sorted` may be the memory of `policy`
  double* matched;          // (rows)
};

/// One block for all pairs: their values, then each in its place, then what has its rank.
__global__ void __launch_bounds__(group_block) match_kernel(const Matching m) {
  double *const first = m.values, *const second = first + m.pairs;
  for (std::int64_t k = threadIdx.x; k < m.pairs; k += group_block) {
    const double *const policy = m.policy + 2 * k, *const reference = m.reference ? m.reference + 2 * k : nullptr;
    const SequenceSums chosen{policy[0], reference ? reference[0] : 0.0, 1};
    const SequenceSums rejected{policy[1], reference ? reference[1] : 0.0, 1};
    const SortedValues values = sorted_values(m.kind, chosen, rejected);
    first[k] = values.first;
    second[k] = values.second;
  }
  __syncthreads();
  for (std::int64_t k = threadIdx.x; k < m.pairs; k += group_block) {
    for (int i = 0; i < 2; ++i) {
      const double* const values = m.values + i * m.pairs;
      const std::int64_t rank = rank_of(values, m.pairs, k);
      m.sorted[i * m.pairs + rank] = values[k];
      m.matched[2 * k + i] = static_cast<double>(rank);
    }
  }
  __syncthreads();
  for (std::int64_t k = threadIdx.x; k < m.pairs; k += group_block) {
    double* const matched = m.matched + 2 * k;
    const auto rank = static_cast<std::int64_t>(matched[0]), other = static_cast<std::int64_t>(matched[1]);
    matched[0] = m.sorted[m.pairs + rank];
    matched[1] = m.kind == PreferenceKind::aot ? matched[0] : m.sorted[other];
  }
}

}  // namespace

void preference_loss(const PreferenceLossArgs& args, StreamView stream) {
  const std::int64_t pairs = args.rows.targets.shape[0] / 2;
  if (pairs == 0) return;
  const Pairs p{args.spec,
                rows_of(args.rows),
                args.reference_sums ? args.reference_sums.as<double>() : nullptr,
                args.matched ? args.matched.as<double>() : nullptr,
                args.spec.nll != 0 && args.nll_weights ? data_of<float>(args.nll_weights) : nullptr,
                args.weights ? data_of<float>(args.weights) : nullptr,
                reinterpret_cast<SumCounters*>(args.sums),
                args.metrics,
                args.factor,
                args.is_further};
  const PairForm form = args.spec.form();
  const auto kernel = form == PairForm::sorted      ? pairs_kernel<PairForm::sorted>
                      : form == PairForm::diverging ? pairs_kernel<PairForm::diverging>
                      : form == PairForm::ratio     ? pairs_kernel<PairForm::ratio>
                                                    : pairs_kernel<PairForm::margin>;
  kernel<<<blocks_for(pairs, 1), group_block, 0, stream_of(stream)>>>(p);
  check_launch("preference_loss");
}

void labelled_loss(const LabelledLossArgs& args, StreamView stream) {
  const std::int64_t rows = args.rows.targets.shape[0];
  if (rows == 0) return;
  const Labelled p{args.spec,
                   rows_of(args.rows),
                   args.reference_sums ? args.reference_sums.as<double>() : nullptr,
                   data_of<float>(args.labels),
                   args.kl.as<double>(),
                   args.weights ? data_of<float>(args.weights) : nullptr,
                   reinterpret_cast<SumCounters*>(args.sums),
                   args.metrics};
  labelled_kernel<<<blocks_for(rows, 1), group_block, 0, stream_of(stream)>>>(p);
  check_launch("labelled_loss");
}

void sum_sequences(const SumSequencesArgs& args, StreamView stream) {
  const std::int64_t rows = args.rows.targets.shape[0];
  if (rows == 0) return;
  sequences_kernel<<<blocks_for(rows, 1), group_block, 0, stream_of(stream)>>>(rows_of(args.rows),
                                                                               args.sums.as<double>());
  check_launch("sum_sequences");
}

void match_sorted(const MatchSortedArgs& args, StreamView stream) {
  const std::int64_t rows = args.rows.targets.shape[0];
  if (rows == 0) return;
  auto* const scratch = args.scratch.as<double>();
  sequences_kernel<<<blocks_for(rows, 1), group_block, 0, stream_of(stream)>>>(rows_of(args.rows), scratch);
  const Matching m{args.kind,
                   rows / 2,
                   scratch,
                   args.reference_sums ? args.reference_sums.as<double>() : nullptr,
                   scratch + rows,
                   scratch,
                   args.matched.as<double>()};
  match_kernel<<<1, group_block, 0, stream_of(stream)>>>(m);
  check_launch("match_sorted");
}

}  // namespace tessera::kernels::cuda
