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
  SequenceSums sums{0, 0, 0};
  sums.policy = ThreadGroup<group_block>::sum(sum);
  sums.targets = ThreadGroup<group_block>::sum(targets);
  return sums;
}

struct Pairs {
  PreferenceSpec spec;
  SequenceRowsOnDevice rows;
  const double* reference;   // (rows); null: 0
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

template <bool rare>
__global__ void __launch_bounds__(group_block) pairs_kernel(const Pairs p) {
  const std::int64_t row = 2 * static_cast<std::int64_t>(blockIdx.x);
  SequenceSums chosen = sums_of(p.rows, row);
  SequenceSums rejected = sums_of(p.rows, row + 1);
  if (p.reference) {
    chosen.reference = p.reference[row];
    rejected.reference = p.reference[row + 1];
  }
  const PairTerms terms = pair_terms<rare>(p.spec, chosen, rejected);
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

}  // namespace

void preference_loss(const PreferenceLossArgs& args, StreamView stream) {
  const std::int64_t pairs = args.rows.targets.shape[0] / 2;
  if (pairs == 0) return;
  const Pairs p{args.spec,
                rows_of(args.rows),
                args.reference_sums ? args.reference_sums.as<double>() : nullptr,
                args.spec.nll != 0 && args.nll_weights ? data_of<float>(args.nll_weights) : nullptr,
                args.weights ? data_of<float>(args.weights) : nullptr,
                reinterpret_cast<SumCounters*>(args.sums),
                args.metrics,
                args.factor,
                args.is_further};
  const auto kernel = args.spec.rare() ? pairs_kernel<true> : pairs_kernel<false>;
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

}  // namespace tessera::kernels::cuda
