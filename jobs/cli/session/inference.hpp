#pragma once
// What `generate` and `eval` begin with: a model that is only read, and a run that holds its parameters and nothing
// else.

#include <memory>
#include <string>

#include "jobs/cli/session/call.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/infer/inference.hpp"

namespace tessera::jobs {

/// What the planner needs, but for lengths: purpose, strategy, micro-batches of
/// --per_device_eval_batch_size rows, at most `most`.
[[nodiscard]] plan::RunSpec inference_spec(const Options& options, const models::Model& model, int world,
                                           const Topology& topology, plan::Purpose purpose, std::int64_t most);

/// Collective. Checks memory, builds the run, reads the weights (--model or --checkpoint) into its shards.
[[nodiscard]] std::unique_ptr<infer::Inference> load_inference(const Options& options, World& world,
                                                               const ModelConfig& config, const models::Model& model,
                                                               const plan::RunSpec& spec);

/// Version, model, parallel, memory (plan = measured) and time: the start-up block.
void announce_inference(const Call& call, const World& world, const ModelConfig& config, const infer::Inference& run,
                        const ThreadAllocation& threads, const std::string& work);

}  // namespace tessera::jobs
