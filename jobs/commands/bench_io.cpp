// `tessera bench io`: saving and loading a state against the disk itself, and what a save beside the steps costs them, both sides in one run.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "jobs/commands/bench_tools.hpp"
#include "jobs/run/machine.hpp"
#include "jobs/run/precision.hpp"
#include "jobs/run/setup.hpp"
#include "jobs/run/room.hpp"
#include "jobs/run/versions.hpp"
#include "runtime/base/log.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

namespace {

using Clock = std::chrono::steady_clock;

/// Collective: how long the slowest rank takes.
double timed(World& world, const auto& work) {
  world.barrier();
  const auto begin = Clock::now();
  world.together(work);
  world.barrier();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};

/// The disk without us: each rank its part of one file, past the page cache, 8 MiB at a time; fsync at the end of a write.
class RawFile {
 public:
  RawFile(World& world, std::string path, std::uint64_t bytes) : world_(world), path_(std::move(path)) {
    const auto ranks = static_cast<std::uint64_t>(world.size());
    part_ = bytes / ranks / chunk * chunk;
    bytes_ = part_ * ranks;
    buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, chunk)));
    for (std::size_t i = 0; i < chunk; ++i) buffer_.get()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  }
  ~RawFile() {
    if (world_.rank() == 0) io::remove_quietly(path_);
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  double write() {
    world_.together([&] {
      if (world_.rank() != 0) return;
      io::File file = io::File::create(path_);
      file.allocate(bytes_);
      file.sync();
    });
    return timed(world_, [&] {
      const io::File file = io::File::open_to_write(path_, io::Cache::direct);
      require(file);
      for (std::uint64_t at = 0; at < part_; at += chunk) file.write_at(first() + at, {buffer_.get(), chunk});
      file.sync();
    });
  }
  double read() {
    return timed(world_, [&] {
      const io::File file = io::File::open_to_read(path_, io::Cache::direct);
      require(file);
      for (std::uint64_t at = 0; at < part_; at += chunk) file.read_at(first() + at, {buffer_.get(), chunk});
    });
  }

 private:
  static constexpr std::size_t chunk = 8u << 20;
  [[nodiscard]] std::uint64_t first() const { return static_cast<std::uint64_t>(world_.rank()) * part_; }
  void require(const io::File& file) const {
    if (file.descriptor() < 0)
      throw Error(ExitCode::data, "this file system has no O_DIRECT: there is no disk to measure against", path_, "Choose another --dir");
  }
  World& world_;
  std::string path_;
  std::uint64_t part_ = 0, bytes_ = 0;
  std::unique_ptr<std::byte, FreeMemory> buffer_;
};

/// A state of about `bytes`, in blocks of square matrices, sharded over all ranks.
struct MadeState {
  MadeState(World& world, std::uint64_t bytes) {
    constexpr std::int64_t width = 1024, matrices = 12;  // of a block
    const auto blocks = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / (12 * width * width * matrices)));
    for (std::int64_t b = 0; b < blocks; ++b) {
      shard::UnitSpec unit{strfmt("h.%lld", static_cast<long long>(b)), {}};
      for (std::int64_t m = 0; m < matrices; ++m) {
        unit.params.push_back(static_cast<int>(params.size()));
        params.push_back({.name = strfmt("h.%lld.w%lld.weight", static_cast<long long>(b), static_cast<long long>(m)), .shape = {width, width}});
        params.push_back({.name = strfmt("h.%lld.w%lld.bias", static_cast<long long>(b), static_cast<long long>(m)), .shape = {width}});
        unit.params.push_back(unit.params.back() + 1);
      }
      units.push_back(std::move(unit));
    }
    layout = shard::ShardLayout(params, units, Mesh(1, world.size()));
    std::size_t floats = 0;
    for (int u = 0; u < layout.num_units(); ++u) floats += static_cast<std::size_t>(layout.shard_numel(u)) * io::num_state_kinds;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (floats * sizeof(float) + 4095) / 4096 * 4096)));
    if (!memory) throw std::bad_alloc();
    auto* next = reinterpret_cast<float*>(memory.get());
    for (std::size_t i = 0; i < floats; ++i) next[i] = static_cast<float>(static_cast<std::int32_t>(i * 2654435761u)) * 1e-9f;
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
  std::unique_ptr<std::byte, FreeMemory> memory;
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
    io::CheckpointSave save(world, {.directory = checkpoint, .step = 0, .params = state.params, .layout = &state.layout, .shards = state.shards});
    const io::SaveReport saved = save.commit();
    sides.save.push_back(static_cast<double>(saved.bytes) / saved.seconds);
    world.barrier();
    const auto begin = Clock::now();
    const io::LoadReport loaded = io::CheckpointReader(world, checkpoint).load(state.params, state.layout, state.shards);
    sides.load.push_back(static_cast<double>(loaded.bytes) / std::chrono::duration<double>(Clock::now() - begin).count());
    world.together([&] {
      if (world.rank() == 0) io::remove_checkpoint(checkpoint);
    });
  }
  return sides;
}

/// Lets one save run beside the steps.
class Beside final : public train::StepGuest {
 public:
  shard::StepNotes notes() override { return {.stop = 0, .save = 0, .saved = save && save->finished() ? 1 : 0}; }
  void before_update(int unit) override {
    if (save) save->before_update(unit);
  }
  std::unique_ptr<io::CheckpointSave> save;
};

struct AsyncSides {
  std::vector<double> plain, beside, now;  // seconds: ten steps; ten steps with a save beside them; a save for which all wait
  std::vector<double> begin, commit;  // of the save beside them: what all wait for
  std::vector<double> cpu;  // seconds of processor time of the threads that saved beside them, over all ranks
  double bytes = 0, copied = 0;
};

AsyncSides measure_async(const Call& call, World& world, const models::Model& model, const std::string& directory, int repeats) {
  constexpr std::int64_t steps = 10;
  train::TrainerOptions options = trainer_options(call.options(), model, world, 1000000);
  options.run.snapshot_vectors = io::num_state_kinds;
  train::Trainer trainer(world, options);
  trainer.initialise();
  const std::int64_t global = options.run.batch.global_batch;
  const RandomTokens tokens((steps + 1) * global * options.run.tokens + 1, model.vocab);
  const io::Sampler sampler(io::count_samples(tokens.size(), options.run.tokens).samples, false, 1);
  Beside guest;
  trainer.set_guest(&guest);
  const std::string checkpoint = directory + "/" + io::checkpoint_name(0);
  io::SaveRequest request{.directory = checkpoint, .step = 0, .params = model.params, .layout = &trainer.plan().layout, .shards = trainer.state(),
                          .replica = trainer.replica(), .replicas = trainer.num_replicas()};
  const auto remove = [&] {
    world.together([&] {
      if (world.rank() == 0) io::remove_checkpoint(checkpoint);
    });
  };
  AsyncSides sides;
  const auto run = [&](bool save) {
    world.barrier();
    const auto begin = Clock::now();
    for (std::int64_t s = 0; s < steps; ++s) {
      if (save && s == 1) {
        request.snapshot = trainer.room(plan::snapshot_name);
        request.threads = 1;
        request.compare_replicas = false;
        const auto now = Clock::now();
        guest.save = std::make_unique<io::CheckpointSave>(world, request);
        sides.begin.push_back(std::chrono::duration<double>(Clock::now() - now).count());
      }
      const train::StepReport report = trainer.step(tokens, sampler, s * global, global);
      if (guest.save && (report.notes.saved == world.size() || s + 1 == steps)) {
        const auto now = Clock::now();
        const io::SaveReport report_of_save = guest.save->commit();
        guest.save.reset();
        sides.commit.push_back(std::chrono::duration<double>(Clock::now() - now).count());
        sides.bytes = static_cast<double>(report_of_save.bytes);
        sides.copied = static_cast<double>(report_of_save.copied);
        sides.cpu.push_back(1e-6 * static_cast<double>(world.sum(static_cast<std::int64_t>(1e6 * report_of_save.cpu_seconds))));
      }
    }
    world.barrier();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  (void)trainer.step(tokens, sampler, 0, global);
  for (int i = 0; i < repeats; ++i) {
    sides.plain.push_back(run(/*save=*/false));
    sides.beside.push_back(run(/*save=*/true));
    remove();
    io::SaveRequest now = request;
    now.snapshot = {};
    now.threads = 2;
    now.compare_replicas = true;
    world.barrier();
    io::CheckpointSave save(world, now);
    sides.now.push_back(save.commit().seconds);
    remove();
  }
  trainer.set_guest(nullptr);
  return sides;
}

/// Of pairs that were measured one after the other.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

double added_share(const AsyncSides& sides) {
  std::vector<double> added;
  for (std::size_t i = 0; i < sides.plain.size(); ++i) added.push_back(sides.beside[i] - sides.plain[i]);
  return median(added) / median(sides.now);
}

}  // namespace

int bench_io_command(const Call& call, World& world) {
  const Options& options = call.options();
  const std::string directory = options.has("dir") ? options.text("dir") : ".";
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const std::uint64_t bytes = options.bytes("size");
  (void)take_cores(call.options(), world);
  world.together([&] {
    if (world.rank() == 0) io::make_directories(directory);
  });
  const Sides sides = measure_disk(world, directory, bytes, repeats);
  const double save = median_ratio(sides.save, sides.raw_write), load = median_ratio(sides.load, sides.raw_read);
  nlohmann::ordered_json json = {{"ranks", world.size()}, {"bytes", bytes}, {"repeats", repeats}, {"raw_write", median(sides.raw_write)},
                                 {"raw_read", median(sides.raw_read)}, {"save", median(sides.save)}, {"load", median(sides.load)},
                                 {"save_over_raw", save}, {"load_over_raw", load}};
  const auto gib = [](double rate) { return rate / 1073741824.0; };
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(strfmt("%s in %s, %d ranks, %d times in turns; medians of rates, and of ratios of neighbours", human_bytes(static_cast<double>(bytes)).c_str(),
                     directory.c_str(), world.size(), repeats));
    log::info(strfmt("%-28s %8.2f GiB/s", "raw write (O_DIRECT, fsync)", gib(median(sides.raw_write))));
    log::info(strfmt("%-28s %8.2f GiB/s %7.1f%% of raw", "save (CRC32C, fsync, commit)", gib(median(sides.save)), 100 * save));
    log::info(strfmt("%-28s %8.2f GiB/s", "raw read (O_DIRECT)", gib(median(sides.raw_read))));
    log::info(strfmt("%-28s %8.2f GiB/s %7.1f%% of raw", "load (every block checked)", gib(median(sides.load)), 100 * load));
  }
  if (options.has("model") || options.has("shape")) {
    const ModelConfig config = read_model_config(options, &world);
    const models::Model model = models::make(config.text, config.path, precision_of(options).compute);
    const AsyncSides async = measure_async(call, world, model, directory, repeats);
    const double share = added_share(async);
    json["ten_steps_s"] = median(async.plain), json["ten_steps_with_async_save_s"] = median(async.beside);
    json["synchronous_save_s"] = median(async.now), json["added_over_synchronous"] = share;
    json["async_begin_s"] = median(async.begin), json["async_commit_s"] = median(async.commit), json["async_cpu_s"] = median(async.cpu);
    if (!options.flag("json")) {
      log::info(strfmt("ten steps of %s: %.2f s; with a save of %s beside them %.2f s; a save for which all wait %.2f s", config.path.c_str(),
                       median(async.plain), human_bytes(async.bytes).c_str(), median(async.beside), median(async.now)));
      log::info(strfmt("%-28s %7.1f%% of a synchronous save; all wait %.0f ms to begin and %.0f ms to commit, rank 0 copies %s", "async: time added",
                       100 * share, 1e3 * median(async.begin), 1e3 * median(async.commit), human_bytes(async.copied).c_str()));
      log::info(strfmt("%-28s %7.2f s of processor time over all ranks, of %.2f s that a synchronous save holds them", "async: the save's threads",
                       median(async.cpu), static_cast<double>(world.size()) * median(async.now)));
    }
  }
  if (options.flag("json")) log::info(json.dump(2));
  return static_cast<int>(ExitCode::ok);
}

}  // namespace tessera::jobs
