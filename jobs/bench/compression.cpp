// SPDX-License-Identifier: Apache-2.0
// `tessera bench compression`: training steps whose collectives send int8 against the same steps in fp32, in one run.
#include <nlohmann/json.hpp>

#include "jobs/bench/benched_steps.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// Steps with one compression.
struct CompressedSteps {
  const char* name = "";
  shard::Compression compression;
  std::vector<double> seconds, comm;
  std::uint64_t across_nodes = 0, planned = 0;  // bytes of a step between nodes, all ranks: counted, planned
  std::size_t memory = 0;                       // bytes, summed over ranks
};

/// Bytes that all ranks have sent to other nodes.
std::uint64_t sent_across(const train::Trainer& trainer, World& world) {
  std::uint64_t bytes = 0;
  for (const AxisSet axes : trainer.plan().groups.all) bytes += trainer.traffic(axes).across_nodes;
  return static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(bytes)));
}

/// `steps` steps after two to warm up.
void measure_compression(CompressedSteps& out, const train::TrainerOptions& base, World& world,
                         const io::TokenStream& tokens, std::int64_t steps) {
  train::TrainerOptions options = base;
  options.run.strategy.policy.compression = out.compression;
  options.lr.kind = train::LrSchedule::Kind::constant;
  train::Trainer trainer(world, options);
  trainer.initialize();
  const std::int64_t global = options.run.batch.global_batch;
  const io::Sampler sampler(io::count_samples(tokens.size(), options.run.tokens).samples, false, 1);
  std::uint64_t before = 0;
  for (std::int64_t step = 0; step < steps + 2; ++step) {
    if (step == 2) before = sent_across(trainer, world);
    const train::StepReport report = trainer.step(tokens, sampler, step * global, global);
    if (step < 2) continue;
    out.seconds.push_back(report.seconds);
    out.comm.push_back(report.comm_seconds);
  }
  out.across_nodes = (sent_across(trainer, world) - before) / static_cast<std::uint64_t>(steps);
  const plan::Costs& costs = trainer.plan().costs;
  out.planned = static_cast<std::uint64_t>(
      world.sum(static_cast<std::int64_t>(costs.shard_axis.across_nodes + costs.replicate_axis.across_nodes)));
  out.memory = static_cast<std::size_t>(world.sum(static_cast<std::int64_t>(costs.total)));
}

void print_compression(const CompressedSteps& plain, const CompressedSteps& int8, bool as_json) {
  const double faster = median(plain.seconds) / median(int8.seconds),
               fewer = static_cast<double>(plain.across_nodes) /
                       static_cast<double>(std::max<std::uint64_t>(1, int8.across_nodes));
  if (as_json) {
    nlohmann::ordered_json json;
    for (const CompressedSteps* steps : {&plain, &int8})
      json[steps->name] = {{"step_s", median(steps->seconds)},
                           {"comm_s", median(steps->comm)},
                           {"across_nodes_bytes", steps->across_nodes},
                           {"planned_across_nodes_bytes", steps->planned},
                           {"memory_bytes", steps->memory},
                           {"steps", steps->seconds.size()}};
    json["step_fp32_over_int8"] = faster;
    json["bytes_fp32_over_int8"] = fewer;
    return log::info(json.dump(2));
  }
  log::info(
      strfmt("%-6s %12s %10s %18s %12s %14s", "", "median step", "comm", "between nodes", "planned", "memory, all"));
  for (const CompressedSteps* steps : {&plain, &int8})
    log::info(strfmt("%-6s %9.1f ms %9.1f%% %18s %12s %14s", steps->name, 1e3 * median(steps->seconds),
                     100 * median(steps->comm) / median(steps->seconds), human_bytes(steps->across_nodes).c_str(),
                     human_bytes(steps->planned).c_str(), human_bytes(steps->memory).c_str()));
  log::info(strfmt("fp32 / int8  step %.2f, bytes between nodes %.2f", faster, fewer));
}

}  // namespace

void bench_compression_command(const Call& call, World& world) {
  const Options& options = call.options();
  check_options(options);
  CompressedSteps plain{.name = "fp32"}, int8{.name = "int8", .compression = compression_of(options)};
  if (!int8.compression.any())
    throw options.refuse("reduce_dtype", "bench compression compares with fp32, and nothing is compressed",
                         "Give --reduce_dtype int8, --gather_dtype int8, or both");
  const BenchedSteps benched(options, world);
  const train::TrainerOptions& base = benched.trainer;
  const std::int64_t steps = benched.steps;
  const RandomTokens tokens = benched.tokens(2);
  if (!options.flag("json")) {
    benched.print();
    log::info(strfmt("parallel  %s %s | %d ranks on %d nodes | transport %s", base.run.strategy.name.c_str(),
                     base.run.strategy.mesh.str().c_str(), world.size(), world.node_count(),
                     name_of(world.topology().transport)));
  }
  // Both take turns twice, so that a change of the machine's speed affects both.
  for (const std::int64_t part : {(steps + 1) / 2, steps / 2})
    for (CompressedSteps* of : {&plain, &int8})
      if (part > 0) measure_compression(*of, base, world, tokens, part);
  print_compression(plain, int8, options.flag("json"));
}

}  // namespace tessera::jobs
