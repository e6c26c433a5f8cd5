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
  const std::int32_t* ends;  // null: each sequence is a row
  const double* squares;     // null: not wanted
  std::int64_t tokens;       // of a row
  double tail_weight;        // 1: all targets weigh the same
};

SequenceRowsOnDevice rows_of(const SequenceRows& rows, double tail_weight) {
  return {data_of<float>(rows.log_probs),
          data_of<std::int32_t>(rows.targets),
          rows.ends ? data_of<std::int32_t>(rows.ends) : nullptr,
          rows.log_sum_squares ? rows.log_sum_squares.as<double>() : nullptr,
          rows.targets.shape[1],
          tail_weight};
}

/// The tokens of a sequence.
struct Tokens {
  std::int64_t begin, end;
};
__device__ Tokens tokens_of(const SequenceRowsOnDevice& rows, std::int64_t row) {
  if (!rows.ends) return {row * rows.tokens, (row + 1) * rows.tokens};
  return {row == 0 ? 0 : rows.ends[row - 1], rows.ends[row]};
}

/// For every thread of the block, as all below.
__device__ std::int64_t num_targets(const SequenceRowsOnDevice& rows, Tokens in) {
  std::int64_t targets = 0;
  for (std::int64_t t = in.begin + threadIdx.x; t < in.end; t += group_block)
    targets += rows.targets[t] != ignore_index ? 1 : 0;
  return ThreadGroup<group_block>::sum(targets);
}

/// Where the first tokens end that have as many targets as the other sequence of the pair; the sequence's end, if all
/// targets weigh the same or the other one has as many.
__device__ std::int64_t shared_end(const SequenceRowsOnDevice& rows, std::int64_t row) {
  const Tokens tokens = tokens_of(rows, row);
  if (rows.tail_weight == 1) return tokens.end;
  const std::int64_t most = num_targets(rows, tokens_of(rows, row ^ 1));
  if (num_targets(rows, tokens) <= most) return tokens.end;
  std::int64_t low = tokens.begin,
               high = tokens.end;  // the tokens before low have few enough, those before high do not
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (num_targets(rows, {tokens.begin, middle}) <= most ? low : high) = middle;
  }
  return low;
}

/// `shared`: shared_end.
__device__ SequenceSums sums_of(const SequenceRowsOnDevice& rows, std::int64_t row, std::int64_t shared) {
  const Tokens tokens = tokens_of(rows, row);
  double sum = 0, tail = 0, squares = 0;
  std::int64_t targets = 0;
  for (std::int64_t t = tokens.begin + threadIdx.x; t < tokens.end; t += group_block) {
    if (rows.targets[t] == ignore_index) continue;
    (t < shared ? sum : tail) += static_cast<double>(rows.log_probs[t]);
    if (rows.squares) squares += rows.squares[t];
    ++targets;
  }
  SequenceSums sums{};
  sums.all = sums.policy = ThreadGroup<group_block>::sum(sum);
  sums.targets = ThreadGroup<group_block>::sum(targets);
  if (rows.tail_weight != 1) {
    tail = ThreadGroup<group_block>::sum(tail);
    sums.all += tail;
    sums.policy += rows.tail_weight * tail;
  }
  if (rows.squares) sums.log_sum_squares = ThreadGroup<group_block>::sum(squares);
  return sums;
}

struct Pairs {
  PreferenceSpec spec;
  SequenceRowsOnDevice rows;
  const double* reference;   // (rows); null: 0
  const double* matched;     // (rows); null: no pairs are sorted
  const float* nll_weights;  // (rows); null: no cross-entropy
  float* weights;            // of each token; null: not wanted
  SumCounters* sums;         // null: not wanted
  std::int64_t* metrics;     // null: not wanted
  double factor;
  bool is_further;
};

__device__ void add_integer(std::int64_t* to, std::int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

/// Cross-entropy weights of a sequence's targets: of a loss with the slope, and `nll` of the cross-entropy of all.
__device__ void write_weights(const Pairs& p, std::int64_t row, double slope, double nll) {
  const Tokens tokens = tokens_of(p.rows, row);
  const std::int64_t shared = shared_end(p.rows, row);
  const auto of_shared = static_cast<float>(-slope + nll),
             of_tail = static_cast<float>(-slope * p.rows.tail_weight + nll);
  for (std::int64_t t = tokens.begin + threadIdx.x; t < tokens.end; t += group_block)
    p.weights[t] = (p.is_further ? p.weights[t] : 0.0F) + (t < shared ? of_shared : of_tail);
}

template <PairForm form>
__global__ void __launch_bounds__(group_block) pairs_kernel(const Pairs p) {
  const std::int64_t row = 2 * static_cast<std::int64_t>(blockIdx.x);
  SequenceSums chosen = sums_of(p.rows, row, shared_end(p.rows, row));
  SequenceSums rejected = sums_of(p.rows, row + 1, shared_end(p.rows, row + 1));
  if (p.reference) {
    chosen.reference = p.reference[row];
    rejected.reference = p.reference[row + 1];
  }
  if (form == PairForm::sorted) {
    chosen.matched = p.matched[row];
    rejected.matched = p.matched[row + 1];
  }
  const double factor = p.factor * pair_weight(p.spec, chosen, rejected);
  const PairTerms terms = pair_terms<form>(p.spec, chosen, rejected);
  if (threadIdx.x == 0) {
    if (p.sums && p.is_further) add_term(p.sums, factor * terms.loss);
    else if (p.sums) add_loss(p.sums, factor * terms.loss, terms.chosen_reward > terms.rejected_reward);
    if (p.metrics) {
      constexpr int targets = static_cast<int>(PreferenceSum::nll_targets);
      const double values[targets] = {terms.chosen_reward, terms.rejected_reward, terms.chosen_logp,
                                      terms.rejected_logp, -chosen.all};
#pragma unroll
      for (int i = 0; i < targets; ++i) add_integer(p.metrics + i, preference_units(values[i]));
      add_integer(p.metrics + targets, chosen.targets);
    }
  }
  if (!p.weights) return;
  const double nll = p.nll_weights ? p.spec.nll * static_cast<double>(p.nll_weights[row]) : 0.0;
  write_weights(p, row, factor * terms.chosen_slope, nll);
  write_weights(p, row + 1, factor * terms.rejected_slope, 0);
}

struct Labelled {
  PreferenceSpec spec;
  SequenceRowsOnDevice rows;
  const double* reference;  // (rows); null: 0
  const float* labels;      // (rows)
  const double* kl;         // (rows)
  float* weights;           // of each token; null: not wanted
  SumCounters* sums;        // null: not wanted
  std::int64_t* metrics;    // null: not wanted
};

__global__ void __launch_bounds__(group_block) labelled_kernel(const Labelled p) {
  const std::int64_t row = blockIdx.x;
  const Tokens tokens = tokens_of(p.rows, row);
  SequenceSums sums = sums_of(p.rows, row, tokens.end);
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
  for (std::int64_t t = tokens.begin + threadIdx.x; t < tokens.end; t += group_block)
    p.weights[t] = static_cast<float>(-terms.slope);
}

__global__ void __launch_bounds__(group_block) sequences_kernel(const SequenceRowsOnDevice rows, double* sums) {
  const SequenceSums of = sums_of(rows, blockIdx.x, shared_end(rows, blockIdx.x));
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
  const std::int64_t pairs = args.rows.count() / 2;
  if (pairs == 0) return;
  const Pairs p{args.spec,
                rows_of(args.rows, args.spec.tail_weight),
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
  const std::int64_t rows = args.rows.count();
  if (rows == 0) return;
  const Labelled p{args.spec,
                   rows_of(args.rows, 1),
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
  const std::int64_t rows = args.rows.count();
  if (rows == 0) return;
  sequences_kernel<<<blocks_for(rows, 1), group_block, 0, stream_of(stream)>>>(rows_of(args.rows, args.tail_weight),
                                                                               args.sums.as<double>());
  check_launch("sum_sequences");
}

void match_sorted(const MatchSortedArgs& args, StreamView stream) {
  const std::int64_t rows = args.rows.count();
  if (rows == 0) return;
  auto* const scratch = args.scratch.as<double>();
  sequences_kernel<<<blocks_for(rows, 1), group_block, 0, stream_of(stream)>>>(rows_of(args.rows, args.tail_weight),
                                                                               scratch);
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
