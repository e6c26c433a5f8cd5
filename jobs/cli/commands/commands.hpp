#pragma once
// The commands of the program. Each returns an exit code, or throws Error on every rank alike.

#include <chrono>

#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

struct Call {
  const Invocation& invocation;
  std::vector<std::string> command_line;
  std::chrono::steady_clock::time_point started;
  [[nodiscard]] const Options& options() const { return invocation.options; }
};

int train_command(const Call& call, World& world);
int generate_command(const Call& call, World& world);
int eval_command(const Call& call, World& world);
int bench_command(const Call& call, World& world);
int bench_step_command(const Call& call, World& world);
int bench_generate_command(const Call& call, World& world);
int bench_collectives_command(const Call& call, World& world);
int bench_io_command(const Call& call, World& world);
int bench_convert_command(const Call& call, World& world);
int bench_tokenizer_command(const Call& call, World& world);
int tokenize_command(const Call& call, World& world);
int doctor_command(const Call& call, World& world);
int convert_command(const Call& call, World& world);
int checkpoint_command(const Call& call, World& world);
int inspect_command(const Call& call);
int plan_command(const Call& call);
/// The plan of a run whose world is given: `plan`, and `train --dry_run`, which has opened the data and knows their
/// index.
struct PlanOf {
  const Options& options;
  World* world;
  int world_size;
  Topology topology;
  std::size_t index_bytes;
};
int print_plan(const PlanOf& of);
int config_command(const Call& call);
int completion_command(const Call& call);

}  // namespace tessera::jobs
