// `tessera bench io`: saving and loading a state against the disk itself, and what a save beside the steps
// costs them, both sides in one run.
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
      shard::UnitSpec unit{strfmt("h.%lld", static_cast<long long>(b)), {}};
      for (std::int64_t m = 0; m < matrices; ++m) {
        unit.params.push_back(static_cast<int>(params.size()));
        params.push_back({.name = strfmt("h.%lld.w%lld.weight", static_cast<long long>(b), static_cast<long long>(m)),
                          .shape = {width, width}});
        params.push_back({.name = strfmt("h.%lld.w%lld.bias", static_cast<long long>(b), static_cast<long long>(m)),
                          .shape = {width}});
        unit.params.push_back(unit.params.back() + 1);
      }
      units.push_back(std::move(unit));
    }
    layout = shard::ShardLayout(params, units, Mesh(1, world.size()));
    std::size_t floats = 0;
    for (int u = 0; u < layout.num_units(); ++u)
      floats += static_cast<std::size_t>(layout.shard_numel(u)) * io::num_state_kinds;
    auto* next = reinterpret_cast<float*>(memory.emplace(floats * sizeof(float)).span().data());
    for (std::size_t i = 0; i < floats; ++i)
      next[i] = static_cast<float>(static_cast<std::int32_t>(i * 2654435761u)) * 1e-9f;
    for (int u = 0; u < layout.num_units(); ++u) {
      io::StateView view{.unit = u, .shard = world.rank()};
      for (float*& data : view.data) {
        data = next;
        next += layout.shard_numel(u);
      }
      shards.push_back(view);
    }
  }
  std::vector<ParamSpec> params;
  std::vector<shard::UnitSpec> units;
  shard::ShardLayout layout;
  std::optional<io::DirectBuffer> memory;
  std::vector<io::StateView> shards;
};

struct Sides {
  std::vector<double> raw_write, raw_read, save, load;  // bytes per second
};

Sides measure_disk(World& world, const std::string& directory, std::uint64_t bytes, int repeats) {
  const MadeState state(world, bytes);
  RawFile raw(world, directory + "/tessera-bench.raw", bytes);
  const std::string checkpoint = directory + "/" + io::checkpoint_name(0);
  Sides sides;
  for (int i = 0; i < repeats; ++i) {
    sides.raw_write.push_back(static_cast<double>(raw.bytes()) / raw.write());
    sides.raw_read.push_back(static_cast<double>(raw.bytes()) / raw.read());
    world.barrier();
    io::CheckpointSave save(
        world,
        {.directory = checkpoint, .step = 0, .params = state.params, .layout = &state.layout, .shards = state.shards});
    const io::SaveReport saved = save.commit();
    sides.save.push_back(static_cast<double>(saved.bytes) / saved.seconds);
    world.barrier();
    const auto begin = Clock::now();
    const io::LoadReport loaded =
        io::CheckpointReader(world, checkpoint).load(state.params, state.layout, state.shards);
    sides.load.push_back(static_cast<double>(loaded.bytes) /
                         std::chrono::duration<double>(Clock::now() - begin).count());
    world.run_and_agree([&] {
      if (world.rank() == 0) io::remove_checkpoint(checkpoint);
    });
  }
  return sides;
}

/// Of pairs that were measured one after the other.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

enum class Lines : unsigned char { print, leave };

void report(const AsyncSaveTimes& sides, const std::string& model, World& world, nlohmann::ordered_json& json,
            Lines lines) {
  const double plain = median(sides.plain), now = median(sides.now), beside = median(sides.beside),
               bare = median(sides.bare);
  json.update({{"ten_steps_s", plain},
               {"added_by_async_save_s", beside},
               {"added_by_bare_write_s", bare},
               {"synchronous_save_s", now},
               {"added_over_synchronous", beside / now},
               {"bare_write_over_synchronous", bare / now},
               {"async_begin_s", median(sides.begin)},
               {"async_commit_s", median(sides.commit)},
               {"async_cpu_s", median(sides.cpu)}});
  if (lines == Lines::leave) return;
  log::info(strfmt("ten steps of %s: %.2f s; a save of %s for which all wait: %.2f s", model.c_str(), plain,
                   human_bytes(sides.bytes).c_str(), now));
  const auto spread = [](const std::vector<double>& v) {
    const auto [low, high] = std::ranges::minmax(v);
    return strfmt("%.2f s (%.2f to %.2f)", median(v), low, high);
  };
  log::info(strfmt("%-28s %s, %.1f%% of that save; all wait %.0f ms to begin and %.0f ms to commit, rank 0 copies %s",
                   "async save adds", spread(sides.beside).c_str(), 100 * beside / now, 1e3 * median(sides.begin),
                   1e3 * median(sides.commit), human_bytes(sides.copied).c_str()));
  log::info(strfmt("%-28s %s, %.1f%%: what the disk itself takes from the steps", "a bare write adds",
                   spread(sides.bare).c_str(), 100 * bare / now));
  log::info(strfmt("%-28s %.2f s of processor time over all ranks, of %.2f s that a save for which all wait holds them",
                   "the async save's threads", median(sides.cpu), static_cast<double>(world.size()) * now));
}

}  // namespace

int bench_io_command(const Call& call, World& world) {
  const Options& options = call.options();
  const std::string directory = options.has("dir") ? options.text("dir") : ".";
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const std::uint64_t bytes = options.bytes("size");
  (void)set_rank_threads(call.options(), world);
  world.run_and_agree([&] {
    if (world.rank() == 0) io::make_directories(directory);
  });
  const Sides sides = measure_disk(world, directory, bytes, repeats);
  const double save = median_ratio(sides.save, sides.raw_write), load = median_ratio(sides.load, sides.raw_read);
  nlohmann::ordered_json json = {{"ranks", world.size()},
                                 {"bytes", bytes},
                                 {"repeats", repeats},
                                 {"raw_write", median(sides.raw_write)},
                                 {"raw_read", median(sides.raw_read)},
                                 {"save", median(sides.save)},
                                 {"load", median(sides.load)},
                                 {"save_over_raw", save},
                                 {"load_over_raw", load}};
  const auto gib = [](double rate) { return rate / 1073741824.0; };
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(strfmt("%s in %s, %d ranks, %d times in turns; medians of rates, and of ratios of neighbours",
                     human_bytes(static_cast<double>(bytes)).c_str(), directory.c_str(), world.size(), repeats));
    log::info(strfmt("%-28s %8.2f GiB/s", "raw write (O_DIRECT, fsync)", gib(median(sides.raw_write))));
    log::info(strfmt("%-28s %8.2f GiB/s %7.1f%% of raw", "save (CRC32C, fsync, commit)", gib(median(sides.save)),
                     100 * save));
    log::info(strfmt("%-28s %8.2f GiB/s", "raw read (O_DIRECT)", gib(median(sides.raw_read))));
    log::info(
        strfmt("%-28s %8.2f GiB/s %7.1f%% of raw", "load (every block checked)", gib(median(sides.load)), 100 * load));
  }
  if (options.has("model") || options.has("shape")) {
    const ModelConfig config = read_model_config(options, &world);
    const models::Model model = models::make(config.text, config.path, precision_of(options).compute);
    report(measure_async_save(call, world, model, directory, repeats), config.path, world, json,
           options.flag("json") ? Lines::leave : Lines::print);
  }
  if (options.flag("json")) log::info(json.dump(2));
  return static_cast<int>(ExitCode::ok);
}

}  // namespace tessera::jobs
