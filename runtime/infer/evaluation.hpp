// SPDX-License-Identifier: Apache-2.0
#pragma once
// Evaluation: loss and accuracy over a token stream, in micro-batches that do not depend on the number of ranks.

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "io/data/packing.hpp"
#include "kernels/preference_loss.hpp"
#include "runtime/exec/batches.hpp"
#include "runtime/exec/executor.hpp"
#include "runtime/exec/run_context.hpp"

namespace tessera::infer {

/// Metrics of pairs or of labelled sequences, as TRL names them, from the sums of their loss (kernels::PreferenceSum).
/// Of labelled sequences, the figures of a label that none has are NaN, and so is then `margin`.
struct PreferenceReport {
  using Sums = std::array<std::int64_t, kernels::num_preference_sums>;
  double chosen_reward = 0, rejected_reward = 0, margin = 0, accuracy = 0;
  double chosen_logp = 0, rejected_logp = 0;
  double nll = 0;                                             // mean over the targets of the chosen sequences
  double kl = 0;                                              // of labelled sequences: z₀ of their loss, 0 or more
  double mean_reward = 0, least_reward = 0, most_reward = 0;  // of a reward model: its scores of all sequences
  [[nodiscard]] static PreferenceReport of(const Sums& sums, std::int64_t pairs, std::int64_t right);
};

/// The smallest and the largest score of a reward model, in units of kernels::preference_unit.
struct ScoreRange {
  std::int64_t least = INT64_MAX, most = -INT64_MAX;
  void add(const ScoreRange& other);
  /// Collective: of all ranks.
  void agree(World& world);
  /// Those of a report; nothing, if there are no scores.
  void write(PreferenceReport& report) const;
};
/// Of this rank's scores of the last run of a schedule over these micro-batches, each of at most `most` sequences.
[[nodiscard]] ScoreRange last_scores(const exec::RunContext& parts, const exec::SampleBatches& batches, int micros,
                                     std::int64_t most);

struct EvalReport {
  double loss = 0, token_accuracy = 0;  // per valid token; 0 without any
  std::int64_t tokens = 0;              // valid ones
  double seconds = 0;
  kernels::LossSums sums;  // of all ranks: what the figures above are computed from
  /// Of pairs: then `tokens` counts pairs, and `token_accuracy` is rewards/accuracies. Of labelled sequences it counts
  /// these, and `token_accuracy` means nothing.
  PreferenceReport::Sums preference_sums{};
  double nll_weight = 0;  // of their cross-entropy in `loss`
  double kl_sum = 0;      // of labelled sequences: of each, z₀ of its data set
  ScoreRange scores;      // of a reward model
  [[nodiscard]] PreferenceReport preference() const;
  shard::ControlFlags flags;  // of the last pass, summed over the ranks' callbacks
  bool complete = true;       // false: a stop flag ended it, and the figures are of a part of the data

  /// Adds another data set that was evaluated after this one.
  void add(const EvalReport& other);
};

/// Called after every pass, with the samples done and their total; may be empty. With a KL, a sample counts twice.
using EvalProgress = std::function<void(std::int64_t done, std::int64_t samples)>;

struct Evaluation {
  exec::RunContext* parts = nullptr;
  exec::Executor* executor = nullptr;
  exec::Executor::BoundSchedule* program = nullptr;  // of parts->plan.eval
  std::int64_t step = 0;                             // for error messages
  EvalProgress progress;
  exec::StepCallback* callback = nullptr;  // its flags are asked for in every pass; null: none
  double nll_weight = 0;                   // PreferenceSpec::nll
  bool times_waits = false;                // exec::StepBlock::times_waits, of the passes of the KL
  bool needs_kl = false;                   // the loss of labelled sequences has a KL in it
  /// Takes the log-probabilities of this rank's sequences of a pass (models::sequence_log_probs), from a sample on.
  std::function<void(std::int64_t first_sample, std::span<const double> sums)> take_sequences = {};
};

/// Collective. A stop flag of any rank ends it on all ranks, after the pass that they are in. Loss over the first
/// max_samples samples of T (0: all), in file order: rank m mod W evaluates micro-batch m, samples [m·B, (m+1)·B). Sums
/// are exact, so that the result is the same bit for bit at any number of ranks, at equal threads per rank.
/// With needs_kl a pass over the samples' second sequences comes first, whose KL the loss takes.
[[nodiscard]] EvalReport evaluate(const Evaluation& evaluation, const io::TokenStream& tokens,
                                  std::int64_t max_samples);

/// Which samples of a stream: [first, first + count) in the sampler's order, or without one in file order.
struct SampleRange {
  const io::TokenStream& tokens;
  const io::Sampler* sampler = nullptr;
  std::int64_t first = 0, count = 0;
};
/// What the passes over second sequences have given.
struct KlEstimate {
  double kl = 0;
  shard::ControlFlags flags;  // of the last pass
  bool complete = true;
  io::PackedCounts work;                                        // of its sequences
  double data_seconds = 0, comm_seconds = 0, move_seconds = 0;  // as in exec::StepBlock, of all passes
};
/// Collective, of labelled sequences. The mean over samples of log-probability less the reference's of their second
/// sequences (io::Packing::unpaired), or 0 if that is below 0: TRL's estimate of the KL, over all these samples. Exact
/// at any number of ranks, as evaluate. A stop flag ends it as it ends evaluate; then it is not complete.
[[nodiscard]] KlEstimate estimate_kl(const Evaluation& evaluation, const SampleRange& samples);

}  // namespace tessera::infer
