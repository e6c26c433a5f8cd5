// SPDX-License-Identifier: Apache-2.0
#pragma once
// The program's commands; `bench` is in jobs/bench. A command that returns no exit code ends with 0; each
// throws the same Error on every rank.

#include "jobs/cli/session/call.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

int train_command(const Call& call, World& world);
void generate_command(const Call& call, World& world);
void eval_command(const Call& call, World& world);
void tokenize_command(const Call& call, World& world);
void doctor_command(const Call& call, World& world);
void convert_command(const Call& call, World& world);
/// `convert --merge_lora true`.
void merge_lora(const Call& call, World& world);
int checkpoint_command(const Call& call, World& world);
void inspect_command(const Call& call);
void plan_command(const Call& call);
void config_command(const Call& call);
void report_command(const Call& call);
void completion_command(const Call& call);
void job_script_command(const Call& call);

/// What print_plan prices: a run of the model that `config` describes.
struct PlanOf {
  const Options& options;
  const ModelConfig& config;
  const plan::RunSpec& run;
  bool trains = false;         // `train --dry_run`
  std::string recompute = {};  // recompute_line, with --gradient_checkpointing auto
};
/// Prints the plan. Throws Error (does_not_fit) where it exceeds --device_memory.
void print_plan(const PlanOf& of);

}  // namespace tessera::jobs
