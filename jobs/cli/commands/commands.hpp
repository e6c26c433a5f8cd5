#pragma once
// The program's commands; `bench` is in jobs/bench. Each returns an exit code, or throws the same Error on every rank.

#include "jobs/cli/session/call.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

int train_command(const Call& call, World& world);
int generate_command(const Call& call, World& world);
int eval_command(const Call& call, World& world);
int tokenize_command(const Call& call, World& world);
int doctor_command(const Call& call, World& world);
int convert_command(const Call& call, World& world);
int checkpoint_command(const Call& call, World& world);
int inspect_command(const Call& call);
int plan_command(const Call& call);
int config_command(const Call& call);
int completion_command(const Call& call);

/// What print_plan prices: the options' run on `world_size` ranks.
struct PlanOf {
  const Options& options;
  World* world;  // null: `plan`, which starts no MPI
  int world_size;
  Topology topology;
  std::size_t index_bytes;  // of packed documents; `train --dry_run` has opened the data and knows them
};
/// Prints the plan. Returns 0; throws Error (does_not_fit) where it exceeds --device_memory.
int print_plan(const PlanOf& of);

}  // namespace tessera::jobs
