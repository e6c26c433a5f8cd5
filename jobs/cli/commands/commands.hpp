#pragma once
// The program's commands; `bench` is in jobs/bench. A command that returns no exit code ends with 0; each
// throws the same Error on every rank.

#include "jobs/cli/session/call.hpp"
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

/// What print_plan prices: the options' run on `world_size` ranks.
struct PlanOf {
  const Options& options;
  World* world;  // null: `plan`, which starts no MPI
  int world_size;
  Topology topology;
  bool packed;                // samples hold several documents; `train --dry_run` has opened the data and knows
  bool loss_weights = false;  // tokens have weights
};
/// Prints the plan. Throws Error (does_not_fit) where it exceeds --device_memory.
void print_plan(const PlanOf& of);

}  // namespace tessera::jobs
