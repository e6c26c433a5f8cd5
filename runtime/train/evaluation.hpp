#pragma once
// Evaluation: loss and accuracy over a token stream, in micro-batches whose cut no number of ranks can change.

#include <functional>

#include "io/data/dataset.hpp"
#include "runtime/train/executor.hpp"
#include "runtime/train/run_context.hpp"

namespace tessera::train {

struct EvalReport {
  double loss = 0, token_accuracy = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
};

struct Evaluation {
  RunContext* parts = nullptr;
  Executor* executor = nullptr;
  Executor::BoundSchedule* program = nullptr;  // of parts->plan.eval
  std::int64_t step = 0;                       // for messages
  /// Called after every pass with the samples done and how many there are; may be empty.
  std::function<void(std::int64_t done, std::int64_t samples)> progress;
};

/// Collective. Loss over the first max_samples samples of T (0: all), in file order: micro-batch m holds samples [m·B,
/// (m+1)·B) and is rank m mod W's. Sums are exact, so the figures are the same bits at any number of ranks, at equal
/// threads per rank.
[[nodiscard]] EvalReport evaluate(const Evaluation& evaluation, const io::TokenStream& tokens,
                                  std::int64_t max_samples);

}  // namespace tessera::train
