// SPDX-License-Identifier: Apache-2.0
// `tessera bench scratch --model …`: training steps with states on disk and the bare disk, alternately in one run.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "jobs/bench/bench.hpp"
#include "jobs/bench/benched_steps.hpp"
#include "jobs/bench/plain_disk.hpp"
#include "jobs/cli/session/checkpointing.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::uint64_t bare_turn_bytes = 512u << 20, bare_file_step = 8u << 20, bare_least_memory = 64u << 20;

/// Of rank 0; one element for each turn: a step, then the bare disk.
struct DiskTurns {
  std::vector<train::StepReport> steps;
  // Seconds of the bare disk for bare_turn_bytes in the step's mix: one thread with large requests, and several threads
  // with requests of the store's size.
  std::vector<double> one, several;

  /// Bytes a second by the better of the two in all turns: taking the better one in each turn would favor the bare
  /// disk.
  [[nodiscard]] std::vector<double> bare() const {
    std::vector<double> rates;
    for (const double seconds : median(one) < median(several) ? one : several)
      rates.push_back(static_cast<double>(bare_turn_bytes) / seconds);
    return rates;
  }

  [[nodiscard]] double median_of(const auto& value) const {
    std::vector<double> values;
    for (const train::StepReport& step : steps) values.push_back(value(step));
    return median(values);
  }
};

double rate_of(const io::ScratchTimes& disk) {
  return static_cast<double>(disk.bytes_read + disk.bytes_written) / std::max(disk.busy_seconds, 1e-9);
}

/// Of a rank, of all kinds of states.
std::uint64_t staging_bytes(const plan::RunPlan& plan) {
  std::uint64_t bytes = 0;
  for (const plan::ArenaSlot& slot : plan.slots)
    if (slot.id.use == SlotUse::staged && slot.category == Category::buffers) bytes += slot.bytes;
  return bytes;
}

/// A step, and the bare disk with as large a share of reads, on all ranks at once.
void take_turn(DiskTurns& turns, const train::StepReport& step, PlainDisk& plain, World& world) {
  const auto read = static_cast<double>(step.disk.bytes_read), written = static_cast<double>(step.disk.bytes_written);
  const double reads = read / std::max(read + written, 1.0);
  turns.steps.push_back(step);
  turns.one.push_back(timed(world, [&] { plain.move(reads, 1, 8u << 20, bare_turn_bytes); }));
  turns.several.push_back(
      timed(world, [&] { plain.move(reads, raw_disk_threads, io::ScratchStore::block_bytes, bare_turn_bytes); }));
}

void print_turns(const DiskTurns& turns, bool json) {
  const double rate = turns.median_of([](const auto&s) { return rate_of(s.disk); }),
               seconds = turns.median_of([](const auto&s) { return s.seconds; }),
               busy = turns.median_of([](const auto&s) { return s.disk.busy_seconds; }),
               exposed = turns.median_of([](const auto&s) { return s.move_seconds; }),
               updates = turns.median_of([](const auto&s) { return s.update_seconds; });
  const io::ScratchTimes& disk = turns.steps.back().disk;
  const std::vector<double> bare = turns.bare();
  std::vector<double> share;
  for (std::size_t i = 0; i < bare.size(); ++i) share.push_back(rate_of(turns.steps[i].disk) / bare[i]);
  if (json) {
    const nlohmann::ordered_json result = {{"steps", turns.steps.size()},
                                           {"bytes_read", disk.bytes_read},
                                           {"bytes_written", disk.bytes_written},
                                           {"busy_rate", rate},
                                           {"bare_rate", median(bare)},
                                           {"busy_over_bare", median(share)},
                                           {"step_s", seconds},
                                           {"busy_s", busy},
                                           {"exposed_s", exposed},
                                           {"updates_s", updates}};
    return log::info(result.dump(2));
  }
  constexpr double gib = 1073741824.0;
  log::info(strfmt("a step    reads %s, writes %s: %.2f GiB/s while busy, %.1f%% of the bare disk's %.2f GiB/s",
                   human_bytes(static_cast<double>(disk.bytes_read)).c_str(),
                   human_bytes(static_cast<double>(disk.bytes_written)).c_str(), rate / gib, 100 * median(share),
                   median(bare) / gib));
  log::info(strfmt("          busy %.2f s | exposed %.2f s of %.2f s | updates %.2f s | %s", busy, exposed, seconds,
                   updates, step_bound({seconds, exposed, updates}).c_str()));
}

}  // namespace

void bench_scratch_steps(const Call& call, World& world) {
  const Options& options = call.options();
  check_options(options);
  const BenchedSteps benched(options, world);
  const train::TrainerOptions& run = benched.trainer;
  if (run.run.nvme_path.empty())
    throw Error(ExitCode::usage, "no state of this model is on disk", "command line",
                "Add --offload_optimizer disk --nvme_path DIR");
  const std::int64_t global = run.run.batch.global_batch, steps = benched.steps;
  const RandomTokens tokens = benched.tokens(1);
  const io::Sampler sampler(io::count_samples(tokens.size(), run.run.tokens).samples, false, 1);
  train::Trainer trainer(world, run);
  trainer.initialize();
  std::optional<PlainDisk> plain;
  world.run_and_agree([&] {
    // As large as the states: what caches below the file system hold is as much of it.
    const std::uint64_t states = trainer.plan().costs.in[static_cast<int>(Memory::disk)];
    plain.emplace(PlainDisk::Spec{options.text("nvme_path"), world.rank(), io::round_up(states, bare_file_step),
                                  std::max(staging_bytes(trainer.plan()), bare_least_memory), "--nvme_path"});
    plain->move(0, 1, 8u << 20);  // a first write to allocated space is slower
  });
  if (!options.flag("json")) {
    benched.print();
    log::info(strfmt("disk      %s of rank 0 in %s, %d ranks | medians of %ld steps, of rates and of ratios of pairs",
                     human_bytes(trainer.plan().costs.in[static_cast<int>(Memory::disk)]).c_str(),
                     options.text("nvme_path").c_str(), world.size(), steps));
  }
  DiskTurns turns;
  for (std::int64_t step = 0; step <= steps; ++step) {
    const train::StepReport report = trainer.step(tokens, sampler, step * global, global);
    if (step > 0) take_turn(turns, report, *plain, world);  // the first step writes what was never written
  }
  print_turns(turns, options.flag("json"));
}

}  // namespace tessera::jobs
