#pragma once
// What `generate` and `eval` begin with: a model that is only read, and a run that holds its parameters and nothing else.

#include <memory>
#include <string>

#include "jobs/commands/commands.hpp"
#include "jobs/run/machine.hpp"
#include "jobs/run/setup.hpp"
#include "runtime/train/inference.hpp"

namespace tessera::jobs {

/// Collective. Sets this rank's threads as --threads says, and warns (W021, W022) where they do not get what they need.
ThreadShare take_cores(const Options& options, World& world);

/// What the planner needs, but for lengths: purpose, strategy, micro-batches of --per_device_eval_batch_size rows, at most `most`.
[[nodiscard]] plan::RunSpec inference_spec(const Options& options, const models::Model& model, int world, const Topology& topology,
                                           plan::Purpose purpose, std::int64_t most);

/// Collective. Throws Error (does_not_fit) where a rank of this plan needs more than it may take. Returns what it may take.
std::uint64_t require_fit(const Options& options, World& world, const plan::RunPlan& plan, const std::string& to_do);

/// Collective. Checks memory, builds the run, reads the weights (--model or --checkpoint) into its shards.
[[nodiscard]] std::unique_ptr<train::Inference> load_inference(const Options& options, World& world, const ModelConfig& config,
                                                               const models::Model& model, const plan::RunSpec& spec);

/// Version, model, parallel, memory (plan = measured) and time: the start-up block.
void announce_inference(const Call& call, const World& world, const ModelConfig& config, const train::Inference& run,
                        const ThreadShare& threads, const std::string& work);

}  // namespace tessera::jobs
