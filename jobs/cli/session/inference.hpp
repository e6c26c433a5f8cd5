// SPDX-License-Identifier: Apache-2.0
#pragma once
// The start of `generate` and `eval`: a run that holds parameters, without gradients or optimizer state.

#include <memory>
#include <string>

#include "jobs/cli/session/call.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/infer/inference.hpp"

namespace tessera::jobs {

/// The model of --model or --checkpoint, adapters included, computed and stored in the type of --mixed_precision.
[[nodiscard]] models::Model make_evaluated_model(const Options& options, const ModelConfig& config);

/// What the planner needs, sequence lengths excepted: micro-batches have --per_device_eval_batch_size rows, at most
/// `most`.
[[nodiscard]] plan::RunSpec inference_spec(const Options& options, const models::Model& model, int world,
                                           const Topology& topology, plan::Purpose purpose, std::int64_t most);

/// Collective. Checks memory, builds the run, reads the weights (--model or --checkpoint) into its shards.
[[nodiscard]] std::unique_ptr<infer::Inference> load_inference(const Options& options, World& world,
                                                               const ModelConfig& config, const models::Model& model,
                                                               const plan::RunSpec& spec);

/// New tokens of a prompt without --max_new_tokens, where the model has positions for them.
inline constexpr std::int64_t default_new_tokens = 128;
/// --temperature and the options beside it. Warns (W024) of those that greedy choice does not read.
[[nodiscard]] infer::Sampling sampling_of(const Options& options);

struct InferenceStart {
  const Call* call = nullptr;
  const Options* options = nullptr;  // with the precision that decide_precision chose
  const World* world = nullptr;
  const ModelConfig* config = nullptr;
  const infer::Inference* run = nullptr;
  ThreadAllocation threads;
  std::string work;
};
/// Prints the start-up block: version, model, precision, parallelism, memory planned and measured, time.
void announce_inference(const InferenceStart& start);

}  // namespace tessera::jobs
