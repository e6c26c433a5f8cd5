// SPDX-License-Identifier: Apache-2.0
#pragma once
// Evaluation: loss and accuracy over a token stream, in micro-batches that do not depend on the number of ranks.

#include <array>
#include <functional>
#include <span>

#include "io/data/dataset.hpp"
#include "kernels/preference_loss.hpp"
#include "runtime/exec/executor.hpp"
#include "runtime/exec/run_context.hpp"

namespace tessera::infer {

/// Metrics of pairs or of labelled sequences, as TRL names them, from the sums of their loss (kernels::PreferenceSum).
struct PreferenceReport {
  using Sums = std::array<std::int64_t, kernels::num_preference_sums>;
  double chosen_reward = 0, rejected_reward = 0, margin = 0, accuracy = 0;
  double chosen_logp = 0, rejected_logp = 0;
  double nll = 0;  // mean over the targets of the chosen sequences
  double kl = 0;   // of labelled sequences: z₀ of their loss, 0 or more
  [[nodiscard]] static PreferenceReport of(const Sums& sums, std::int64_t pairs, std::int64_t right);
};

struct EvalReport {
  double loss = 0, token_accuracy = 0;  // per valid token; 0 without any
  std::int64_t tokens = 0;              // valid ones
  double seconds = 0;
  kernels::LossSums sums;  // of all ranks: what the figures above are computed from
  /// Of pairs: then `tokens` counts pairs, and `token_accuracy` is rewards/accuracies. Of labelled sequences it counts
  /// these.
  PreferenceReport::Sums preference_sums{};
  double nll_weight = 0;  // of their cross-entropy in `loss`
  double kl_sum = 0;      // of labelled sequences: of each, z₀ of its data set
  [[nodiscard]] PreferenceReport preference() const;
  shard::ControlFlags flags;  // of the last pass, summed over the ranks' callbacks
  bool complete = true;       // false: a stop flag ended it, and the figures are of a part of the data

  /// Adds another data set that was evaluated after this one.
  void add(const EvalReport& other);
};

/// Called after every pass, with the samples done and their total; may be empty.
using EvalProgress = std::function<void(std::int64_t done, std::int64_t samples)>;

struct Evaluation {
  exec::RunContext* parts = nullptr;
  exec::Executor* executor = nullptr;
  exec::Executor::BoundSchedule* program = nullptr;  // of parts->plan.eval
  std::int64_t step = 0;                             // for error messages
  EvalProgress progress;
  exec::StepCallback* callback = nullptr;  // its flags are asked for in every pass; null: none
  double nll_weight = 0;                   // PreferenceSpec::nll
  bool needs_kl = false;                   // the loss of labelled sequences has a KL in it
  /// Takes the log-probabilities of this rank's rows of a pass (models::sequence_log_probs), from a sample on.
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
/// Collective, of labelled sequences. The mean over samples of log-probability less the reference's of their second
/// sequences (io::Packing::unpaired), or 0 if that is below 0: TRL's estimate of the KL, over all these samples. Exact
/// at any number of ranks, as evaluate.
[[nodiscard]] double estimate_kl(const Evaluation& evaluation, const SampleRange& samples);

}  // namespace tessera::infer
