// SPDX-License-Identifier: Apache-2.0
// `tessera bench io`: saving and loading a checkpoint against the bare disk, and what an asynchronous save costs the
// steps, in one run.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "jobs/bench/io_async.hpp"
#include "jobs/bench/raw_file.hpp"
#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

namespace {

using Clock = std::chrono::steady_clock;

/// A state of about `bytes`, in blocks of square matrices, sharded over all ranks.
struct MadeState {
  MadeState(World& world, std::uint64_t bytes) {
    constexpr std::int64_t width = 1024, matrices = 12;  // of a block
    const auto blocks = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / (12 * width * width * matrices)));
    for (std::int64_t b = 0; b < blocks; ++b) {
      shard::UnitSpec unit{strfmt("h.%ld", b), {}};
      for (std::int64_t m = 0; m < matrices; ++m) {
        unit.params.push_back(static_cast<int>(params.size()));
        params.push_back({.name = strfmt("h.%ld.w%ld.weight", b, m), .shape = {width, width}});
        params.push_back({.name = strfmt("h.%ld.w%ld.bias", b, m), .shape = {width}});
        unit.params.push_back(unit.params.back() + 1);
      }
      units.push_back(std::move(unit));
    }
    layout = shard::ShardLayout(params, units, Mesh(1, world.size()));
    state.states = train::optimizer_states({});
    const std::size_t vectors = 1 + state.states.size();  // of fp32
    std::size_t floats = 0;
    for (int u = 0; u < layout.num_units(); ++u) floats += static_cast<std::size_t>(layout.shard_numel(u)) * vectors;
    auto* next = reinterpret_cast<float*>(memory.emplace(floats * sizeof(float)).span().data());
    for (std::size_t i = 0; i < floats; ++i)
      next[i] = static_cast<float>(static_cast<std::int32_t>(i * 2654435761u)) * 1e-9f;
    for (int u = 0; u < layout.num_units(); ++u) {
      io::StateView& view = state.shards.emplace_back(io::StateView{.unit = u, .shard = world.rank()});
      for (std::size_t v = 0; v < vectors; ++v) {
        view.data.emplace_back(next, Shape{layout.shard_numel(u)});
        next += layout.shard_numel(u);
      }
    }
  }
  std::vector<ParamSpec> params;
  std::vector<shard::UnitSpec> units;
  shard::ShardLayout layout;
  std::optional<io::DirectBuffer> memory;
  io::TrainingState state;
};

struct DiskRates {
  std::vector<double> raw_write, raw_read, save, load;  // bytes per second
};

DiskRates measure_disk(World& world, const std::string& directory, std::uint64_t bytes, int repeats) {
  const MadeState made(world, bytes);
  RawFile raw(world, directory + "/tessera-bench.raw", bytes);
  const std::string checkpoint = directory + "/" + io::checkpoint_name(0);
  DiskRates rates;
  for (int i = 0; i < repeats; ++i) {
    rates.raw_write.push_back(static_cast<double>(raw.bytes()) / raw.write());
    rates.raw_read.push_back(static_cast<double>(raw.bytes()) / raw.read());
    world.barrier();
    io::CheckpointSave save(
        world,
        {.directory = checkpoint, .step = 0, .params = made.params, .layout = &made.layout, .state = made.state});
    const io::SaveReport saved = save.commit();
    rates.save.push_back(static_cast<double>(saved.bytes) / saved.seconds);
    world.barrier();
    const auto begin = Clock::now();
    const io::LoadReport loaded = io::CheckpointReader(world, checkpoint).load(made.params, made.layout, made.state);
    rates.load.push_back(static_cast<double>(loaded.bytes) /
                         std::chrono::duration<double>(Clock::now() - begin).count());
    world.run_on_rank_0([&] { io::remove_directory(checkpoint); });
  }
  return rates;
}

/// The median ratio of values measured one after the other.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

enum class Lines : unsigned char { print, skip };

void report(const AsyncSaveTimes& times, const std::string& model, World& world, nlohmann::ordered_json& json,
            Lines lines) {
  const double plain = median(times.plain), blocking = median(times.blocking), async = median(times.async_added),
               write = median(times.write_added);
  json.update({{"ten_steps_s", plain},
               {"added_by_async_save_s", async},
               {"added_by_bare_write_s", write},
               {"synchronous_save_s", blocking},
               {"added_over_synchronous", async / blocking},
               {"bare_write_over_synchronous", write / blocking},
               {"async_begin_s", median(times.begin)},
               {"async_commit_s", median(times.commit)},
               {"async_cpu_s", median(times.cpu)}});
  if (lines == Lines::skip) return;
  log::info(strfmt("ten steps of %s: %.2f s; a blocking save of %s: %.2f s", model.c_str(), plain,
                   human_bytes(times.bytes).c_str(), blocking));
  const auto spread = [](const std::vector<double>& v) {
    const auto [low, high] = std::ranges::minmax(v);
    return strfmt("%.2f s (%.2f to %.2f)", median(v), low, high);
  };
  log::info(
      strfmt("%-28s %s, %.1f%% of that save; all ranks wait %.0f ms to begin and %.0f ms to commit, rank 0 copies %s",
             "async save adds", spread(times.async_added).c_str(), 100 * async / blocking, 1e3 * median(times.begin),
             1e3 * median(times.commit), human_bytes(times.copied).c_str()));
  log::info(strfmt("%-28s %s, %.1f%%: what the disk alone takes from the steps", "a plain write adds",
                   spread(times.write_added).c_str(), 100 * write / blocking));
  log::info(strfmt("%-28s %.2f s of CPU time over all ranks; a blocking save takes %.2f s of them",
                   "the async save's threads", median(times.cpu), static_cast<double>(world.size()) * blocking));
}

}  // namespace

void bench_io_command(const Call& call, World& world) {
  const Options& options = call.options();
  const std::string directory = options.has("dir") ? options.text("dir") : ".";
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const std::uint64_t bytes = options.bytes("size");
  (void)set_rank_threads(call.options(), world);
  world.run_on_rank_0([&] { io::make_directories(directory); });
  const DiskRates rates = measure_disk(world, directory, bytes, repeats);
  const double save = median_ratio(rates.save, rates.raw_write), load = median_ratio(rates.load, rates.raw_read);
  nlohmann::ordered_json json = {{"ranks", world.size()},
                                 {"bytes", bytes},
                                 {"repeats", repeats},
                                 {"raw_write", median(rates.raw_write)},
                                 {"raw_read", median(rates.raw_read)},
                                 {"save", median(rates.save)},
                                 {"load", median(rates.load)},
                                 {"save_over_raw", save},
                                 {"load_over_raw", load}};
  const auto gib = [](double rate) { return rate / 1073741824.0; };
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(strfmt("%s in %s, %d ranks, %d turns; medians of rates, and of ratios within a turn",
                     human_bytes(bytes).c_str(), directory.c_str(), world.size(), repeats));
    log::info(strfmt("%-28s %8.2f GiB/s", "raw write (O_DIRECT, fsync)", gib(median(rates.raw_write))));
    log::info(strfmt("%-28s %8.2f GiB/s %7.1f%% of raw", "save (CRC32C, fsync, commit)", gib(median(rates.save)),
                     100 * save));
    log::info(strfmt("%-28s %8.2f GiB/s", "raw read (O_DIRECT)", gib(median(rates.raw_read))));
    log::info(
        strfmt("%-28s %8.2f GiB/s %7.1f%% of raw", "load (every block checked)", gib(median(rates.load)), 100 * load));
  }
  if (options.has("model") || options.has("shape")) {
    const ModelConfig config = read_model_config(options, &world);
    const models::Model model = models::make(config.text, config.path, precision_of(options).compute);
    report(measure_async_save(call, world, model, directory, repeats), config.path, world, json,
           options.flag("json") ? Lines::skip : Lines::print);
  }
  if (options.flag("json")) log::info(json.dump(2));
}

}  // namespace tessera::jobs
