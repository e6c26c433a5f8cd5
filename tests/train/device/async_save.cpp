// SPDX-License-Identifier: Apache-2.0
// An asynchronous save from device memory writes the same bytes as a synchronous one.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "io/checkpoint/checkpoint.hpp"
#include "io/file/text_file.hpp"
#include "tests/train/device/device_runs.hpp"

namespace tessera::test {

namespace {

namespace fs = std::filesystem;

class Callback final : public exec::StepCallback {
 public:
  explicit Callback(io::CheckpointSave& save) : save_(save) {}
  shard::ControlFlags flags() override { return {}; }
  void before_update(int unit) override { save_.before_update(unit); }

 private:
  io::CheckpointSave& save_;
};

std::map<std::string, std::string> files_of(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), directory).string()] = io::read_text(entry.path().string());
  return files;
}

/// Saves the second step twice, the second time during two more steps; returns the number of errors.
int compare(World& world, const models::Model& model, const Variant& v, const std::string& base) {
  train::TrainerOptions options = options_of(model, v, 4);
  options.run.snapshot = plan::Snapshot::all;
  train::Trainer trainer(world, options);
  trainer.initialize();
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 11);
  const auto steps = [&](int first, int last) {
    for (int s = first; s < last; ++s) (void)trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
  };
  steps(0, 2);
  io::SaveRequest request;
  request.directory = base + "/now";
  request.step = 2;
  request.params = model.params;
  request.layout = &trainer.plan().layout;
  request.state = trainer.state();
  (void)io::CheckpointSave(world, request).commit();
  request.directory = base + "/async";
  request.snapshot = trainer.slot_memory({SlotUse::snapshot});
  request.threads = 1;
  io::CheckpointSave save(world, request);
  Callback callback(save);
  trainer.set_callback(&callback);
  const std::uint64_t before = trainer.state_hash();
  steps(2, 4);
  trainer.set_callback(nullptr);
  const io::SaveReport report = save.commit();
  int wrong = 0;
  const auto expect = [&](bool well, const char* what) {
    if (!well) std::printf("rank %d: %s, %s\n", world.rank(), what, v.str().c_str()), ++wrong;
  };
  expect(trainer.state_hash() != before, "nothing was updated meanwhile");
  expect(report.copied == request.snapshot.size(), "the snapshot is not of the planned size");
  expect(plan::compare_memory(trainer.plan(), trainer.measured_memory()).empty(), "measured memory is not planned");
  expect(trainer.arena().broken_canary().empty(), "a canary is broken");
  if (world.rank() == 0) expect(files_of(base + "/now") == files_of(base + "/async"), "the files differ");
  world.barrier();
  if (world.rank() == 0) fs::remove_all(base);
  world.barrier();
  return wrong;
}

}  // namespace

int save_asynchronously(World& world) {
  const models::Model model = models::make(config_json({}), "test");
  const std::string base = world.broadcast(
      (fs::temp_directory_path() / strfmt("tessera-async-save-%d", static_cast<int>(::getpid()))).string());
  int wrong = 0;
  for (const char* strategy : {"0", "3"}) {
    if (world.rank() == 0) fs::create_directories(base);
    world.barrier();
    wrong +=
        compare(world, model, {.world = world.size(), .strategy = strategy, .global_batch = 2 * world.size()}, base);
  }
  return wrong;
}

}  // namespace tessera::test
