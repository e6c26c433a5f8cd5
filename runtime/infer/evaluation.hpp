// SPDX-License-Identifier: Apache-2.0
#pragma once
// Evaluation: loss and accuracy over a token stream, in micro-batches that do not depend on the number of ranks.

#include <functional>

#include "io/data/dataset.hpp"
#include "runtime/exec/executor.hpp"
#include "runtime/exec/run_context.hpp"

namespace tessera::infer {

struct EvalReport {
  double loss = 0, token_accuracy = 0;  // per valid token; 0 without any
  std::int64_t tokens = 0;              // valid ones
  double seconds = 0;
  kernels::LossSums sums;     // of all ranks: what the figures above are computed from
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
};

/// Collective. A stop flag of any rank ends it on all ranks, after the pass that they are in. Loss over the first
/// max_samples samples of T (0: all), in file order: rank m mod W evaluates micro-batch m, samples [m·B, (m+1)·B). Sums
/// are exact, so that the result is the same bit for bit at any number of ranks, at equal threads per rank.
[[nodiscard]] EvalReport evaluate(const Evaluation& evaluation, const io::TokenStream& tokens,
                                  std::int64_t max_samples);

}  // namespace tessera::infer
