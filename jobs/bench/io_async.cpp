// SPDX-License-Identifier: Apache-2.0
#include "jobs/bench/io_async.hpp"

#include <chrono>
#include <future>
#include <memory>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "jobs/bench/raw_file.hpp"
#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/checkpointing.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

namespace {

using Clock = std::chrono::steady_clock;

double elapsed_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Lets an asynchronous save follow the steps.
class SaveCallback final : public exec::StepCallback {
 public:
  shard::ControlFlags flags() override { return {.stop = 0, .save = 0, .saved = save && save->finished() ? 1 : 0}; }
  void before_update(int unit) override {
    if (save) save->before_update(unit);
  }
  std::unique_ptr<io::CheckpointSave> save;
};

class Turns {
 public:
  Turns(const Call& call, World& world, const models::Model& model, const std::string& directory)
      : world_(world),
        model_(model),
        checkpoint_(directory + "/" + io::checkpoint_name(0)),
        options_(options_with_snapshot(call, world, model)),
        trainer_(world, options_),
        tokens_((steps + 1) * options_.run.batch.global_batch * options_.run.tokens + 1, model.vocab),
        sampler_(io::count_samples(tokens_.size(), options_.run.tokens).samples, false, 1),
        raw_(world, directory + "/tessera-bench.raw", io::state_bytes(model.params, options_.run.states)) {
    trainer_.initialize();
    trainer_.set_callback(&callback_);
    (void)trainer_.step(tokens_, sampler_, 0, options_.run.batch.global_batch);
  }
  ~Turns() { trainer_.set_callback(nullptr); }

  void turn() {
    const double before = ten_steps([] {});
    const double with_save = ten_steps([&] { begin_save(); });
    remove();
    raw_.create();
    std::future<void> write;
    const double with_write = ten_steps([&] { write = std::async(std::launch::async, [&] { raw_.write_part(); }); });
    write.get();
    const double plain = 0.5 * (before + ten_steps([] {}));
    times.plain.push_back(plain);
    times.async_added.push_back(with_save - plain);
    times.write_added.push_back(with_write - plain);
    world_.barrier();
    io::CheckpointSave save(world_, request());
    times.blocking.push_back(save.commit().seconds);
    remove();
  }
  AsyncSaveTimes times;

 private:
  static constexpr std::int64_t steps = 10;
  static train::TrainerOptions options_with_snapshot(const Call& call, World& world, const models::Model& model) {
    train::TrainerOptions options = trainer_options(call.options(), model, world, 1000000);
    options.run.snapshot = plan::Snapshot::all;
    (void)choose_recompute(call.options(), world, options.run);
    return options;
  }
  io::SaveRequest request() {
    return {.directory = checkpoint_,
            .step = 0,
            .params = model_.params,
            .layout = &trainer_.plan().layout,
            .state = trainer_.state()};
  }
  void begin_save() {
    io::SaveRequest r = request();
    r.snapshot = trainer_.slot_memory({SlotUse::snapshot});
    r.threads = 1;
    r.compare_replicas = false;
    const auto begin = Clock::now();
    callback_.save = std::make_unique<io::CheckpointSave>(world_, r);
    times.begin.push_back(elapsed_since(begin));
  }
  void commit_save() {
    const auto begin = Clock::now();
    const io::SaveReport report = callback_.save->commit();
    callback_.save.reset();
    times.commit.push_back(elapsed_since(begin));
    times.bytes = static_cast<double>(report.bytes);
    times.copied = static_cast<double>(report.copied);
    times.cpu.push_back(1e-6 * static_cast<double>(world_.sum(static_cast<std::int64_t>(1e6 * report.cpu_seconds))));
  }
  /// Seconds; `after_first` is called after the first step.
  double ten_steps(const auto& after_first) {
    const std::int64_t global = options_.run.batch.global_batch;
    world_.barrier();
    const auto begin = Clock::now();
    for (std::int64_t s = 0; s < steps; ++s) {
      if (s == 1) after_first();
      const train::StepReport report = trainer_.step(tokens_, sampler_, s * global, global);
      if (callback_.save && (report.flags.saved == world_.size() || s + 1 == steps)) commit_save();
    }
    world_.barrier();
    return elapsed_since(begin);
  }
  void remove() {
    world_.run_on_rank_0([&] { io::remove_directory(checkpoint_); });
  }

  World& world_;
  const models::Model& model_;
  const std::string checkpoint_;
  const train::TrainerOptions options_;
  train::Trainer trainer_;
  const RandomTokens tokens_;
  const io::Sampler sampler_;
  RawFile raw_;
  SaveCallback callback_;
};

}  // namespace

AsyncSaveTimes measure_async_save(const Call& call, World& world, const models::Model& model,
                                  const std::string& directory, int repeats) {
  Turns turns(call, world, model, directory);
  for (int i = 0; i < repeats; ++i) turns.turn();
  return turns.times;
}

}  // namespace tessera::jobs
