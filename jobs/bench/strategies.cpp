// SPDX-License-Identifier: Apache-2.0
// `tessera bench strategies`: steps of FULL_SHARD and HYBRID_SHARD on several hosts, against what compute and the link
// between hosts allow.
#include <cmath>
#include <nlohmann/json.hpp>

#include "jobs/bench/benched_steps.hpp"
#include "jobs/bench/collective_bench.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "runtime/base/log.hpp"
#include "runtime/plan/network.hpp"

namespace tessera::jobs {

namespace {

/// Steps of one strategy. Seconds of the slowest rank.
struct StrategySteps {
  const char* name = "";
  std::vector<double> seconds, compute;  // of a step; of these the compute stream did not wait
  std::uint64_t uplink = 0;              // bytes of a step that a node sends to other nodes, as planned
  double link_s = 0;                     // they take so long at the rate of a raw socket

  /// No schedule is faster: compute, and what the link carries, each without a pause.
  [[nodiscard]] double least() const { return std::max(median(compute), link_s); }
  [[nodiscard]] double exposed() const { return 1 - median(compute) / median(seconds); }
  [[nodiscard]] double least_exposed() const { return 1 - median(compute) / least(); }
};

double slowest(World& world, double seconds) {
  return 1e-9 * static_cast<double>(world.max(std::llround(1e9 * seconds)));
}

/// `steps` steps after two to warm up.
void measure_strategy(StrategySteps& out, const Options& asked, const train::TrainerOptions& base, World& world,
                      const io::TokenStream& tokens, std::int64_t steps) {
  train::TrainerOptions options = base;
  options.run.strategy = shard::make_strategy(out.name, world.size(), 0, world.topology().ranks_per_node);
  apply_policy(asked, options.run.strategy.policy);
  options.run.strategy.policy.param_dtype = base.run.strategy.policy.param_dtype;
  options.run.strategy.policy.reduce_dtype = base.run.strategy.policy.reduce_dtype;
  options.lr.kind = train::LrSchedule::Kind::constant;
  train::Trainer trainer(world, options);
  trainer.initialize();
  const std::int64_t global = options.run.batch.global_batch;
  const io::Sampler sampler(io::count_samples(tokens.size(), options.run.tokens).samples, false, 1);
  for (std::int64_t step = 0; step < steps + 2; ++step) {
    const train::StepReport report = trainer.step(tokens, sampler, step * global, global);
    const double seconds = slowest(world, report.seconds),
                 compute =
                     slowest(world, report.seconds - report.comm_seconds - report.data_seconds - report.move_seconds);
    if (step < 2) continue;
    out.seconds.push_back(seconds);
    out.compute.push_back(compute);
  }
  const plan::NetworkLoad load = plan::network_load(trainer.plan());
  out.uplink = load.shard_axis.node_uplink + load.replicate_axis.node_uplink;
}

void print_strategies(const std::vector<StrategySteps>& all, double rate, bool as_json) {
  const double ratio = median(all[0].seconds) / median(all[1].seconds);
  if (as_json) {
    nlohmann::ordered_json json = {{"socket_mb_per_s", rate / 1e6}};
    for (const StrategySteps& of : all)
      json[of.name] = {{"step_s", median(of.seconds)},
                       {"compute_s", median(of.compute)},
                       {"uplink_bytes", of.uplink},
                       {"link_s", of.link_s},
                       {"least_step_s", of.least()},
                       {"exposed_share", of.exposed()},
                       {"least_exposed_share", of.least_exposed()},
                       {"steps", of.seconds.size()}};
    json["full_shard_over_hybrid_shard"] = ratio;
    return log::info(json.dump(2));
  }
  log::info(strfmt("%-13s %11s %11s %12s %11s %12s %9s %9s", "", "median step", "compute", "host sends", "link",
                   "least step", "exposed", "at least"));
  for (const StrategySteps& of : all)
    log::info(strfmt("%-13s %8.1f ms %8.1f ms %12s %8.1f ms %9.1f ms %8.1f%% %8.1f%%", of.name,
                     1e3 * median(of.seconds), 1e3 * median(of.compute), human_bytes(of.uplink).c_str(),
                     1e3 * of.link_s, 1e3 * of.least(), 100 * of.exposed(), 100 * of.least_exposed()));
  log::info(strfmt("raw socket    %.2f MB/s between hosts, both directions at once", rate / 1e6));
  log::info(strfmt("FULL_SHARD / HYBRID_SHARD  %.3f", ratio));
}

}  // namespace

void bench_strategies_command(const Call& call, World& world) {
  const Options& options = call.options();
  check_options(options);
  if (world.node_count() < 2 || world.size() % world.topology().ranks_per_node != 0)
    throw Error(ExitCode::usage, "bench strategies compares on several hosts with as many ranks on each",
                strfmt("%d ranks, %d on a host", world.size(), world.topology().ranks_per_node),
                "Start ranks on two hosts or more");
  const BenchedSteps benched(options, world);
  const train::TrainerOptions& base = benched.trainer;
  const std::int64_t steps = benched.steps;
  const RandomTokens tokens = benched.tokens(2);
  if (!options.flag("json")) {
    benched.print();
    log::info(strfmt("parallel  %d ranks on %d nodes | transport %s", world.size(), world.node_count(),
                     name_of(world.topology().transport)));
  }
  std::vector<StrategySteps> all(2);
  all[0].name = "FULL_SHARD", all[1].name = "HYBRID_SHARD";
  std::vector<double> rates;
  // Both take turns twice, so that a change of the machine's speed affects both.
  for (const std::int64_t part : {(steps + 1) / 2, steps / 2})
    for (StrategySteps& of : all) {
      if (part == 0) continue;
      rates.push_back(socket_rate(world, std::size_t{16} << 20));
      measure_strategy(of, options, base, world, tokens, part);
    }
  const double rate = median(rates);
  for (StrategySteps& of : all) of.link_s = static_cast<double>(of.uplink) / rate;
  print_strategies(all, rate, options.flag("json"));
}

}  // namespace tessera::jobs
