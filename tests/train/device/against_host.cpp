// SPDX-License-Identifier: Apache-2.0
// The same runs on the device and on host ranks as threads; checkpoints from one to the other.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "io/checkpoint/checkpoint.hpp"
#include "kernels/threads.hpp"
#include "models/lora.hpp"
#include "models/quantize.hpp"
#include "tests/train/device/device_runs.hpp"

namespace tessera::test {
namespace {

const RandomTokens& tokens() {
  static const RandomTokens made(400, 37);
  return made;
}

void save(World& world, train::Trainer& trainer, const models::Model& model, const std::string& directory, int step) {
  io::SaveRequest request;
  request.directory = directory;
  request.step = step;
  request.params = model.params;
  request.layout = &trainer.plan().layout;
  request.state = trainer.state();
  (void)io::CheckpointSave(world, request).commit();
}

}  // namespace

std::string Said::str() const {
  std::string text;
  for (const double x : numbers) text += strfmt("%a ", x);
  for (const std::int32_t id : tokens) text += strfmt("%d ", id);
  return text + strfmt("%016llx", static_cast<unsigned long long>(hash));
}

Said one_rank(World& world, const models::Model& model, const Variant& v, const Files& files, Choosing* choosing) {
  kernels::set_threads(1);
  const io::TokenStream& stream = files.stream != nullptr ? *files.stream : tokens();
  train::TrainerOptions options = options_of(model, v, steps_of_run);
  options.run.packed = stream.packed() != nullptr;
  train::Trainer trainer(world, options);
  if (files.from.empty()) {
    trainer.initialize();
  } else {
    (void)io::CheckpointReader(world, files.from).load(model.params, trainer.plan().layout, trainer.state());
    trainer.parameters_changed();
    trainer.resume_at({files.first});
  }
  const io::Sampler sampler(io::count_samples(stream, v.tokens).samples, true, 11);
  if (choosing != nullptr)
    choosing->chosen =
        trainer.choose_gemms({.warmup = {&stream, &sampler, v.global_batch}, .kept = choosing->kept, .from = "a test"});
  Said said;
  for (int s = files.first; s < files.last; ++s) {
    const auto report = trainer.step(stream, sampler, s * v.global_batch, v.global_batch);
    said.numbers.insert(said.numbers.end(), {report.loss, report.grad_norm});
    said.numbers.insert(said.numbers.end(), trainer.layer_aux_losses().begin(), trainer.layer_aux_losses().end());
  }
  if (!files.to.empty()) save(world, trainer, model, files.to, files.last);
  const auto refuse = [&](const std::string& what) { world.abort(Error(ExitCode::internal, what, v.str())); };
  if (const std::string differs = plan::compare_memory(trainer.plan(), trainer.measured_memory()); !differs.empty())
    refuse(differs);
  if (const std::string broken = trainer.broken_canary(); !broken.empty())
    refuse("canary of slot " + broken + " is broken");
  said.hash = trainer.state_hash();
  said.numbers.push_back(trainer.evaluate(stream, 7).loss);
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  said.tokens = trainer.generate(prompt, 4, 0.7, 3).value();
  return said;
}

bool agree(const Said& device, const Said& host, Truth truth, DType dtype) {
  if (truth == Truth::exact) return device.str() == host.str();
  const double tolerance = dtype == DType::f32 ? 2e-4 : 5e-2;
  for (std::size_t i = 0; i < device.numbers.size(); ++i) {
    const double a = device.numbers[i], b = host.numbers[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;  // a step of fp16 that was skipped has no norm
    if (!(std::fabs(a - b) <= tolerance * std::fabs(b))) return false;
  }
  return true;
}

Said on_host(int size, int rank, const std::function<Said(World&)>& body) {
  Said said;
  run_local(size, [&](World& world) {
    const Said mine = body(world);
    if (world.rank() == rank) said = mine;
  });
  return said;
}

namespace {

std::vector<Variant> variants(int world) {
  std::vector<Variant> all;
  for (const char* strategy : {"0", "1", "2", "3"})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last})
      all.push_back({.world = world,
                     .strategy = strategy,
                     .global_batch = 2 * world - 1,
                     .reduce = reduce,
                     .selective = strategy[0] == '1'});
  for (const auto streams : {Stream::Mode::threaded, Stream::Mode::deferred})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::shard_each})
      if (world == 4)
        all.push_back({.world = world,
                       .strategy = "HYBRID_SHARD",
                       .group = 2,
                       .global_batch = 2 * world - 1,
                       .reduce = reduce,
                       .streams = streams});
  for (const char* strategy : {"0", "2", "3"})
    all.push_back({.world = world,
                   .strategy = strategy,
                   .global_batch = 2 * world - 1,
                   .recompute = true,
                   .selective = strategy[0] == '2',
                   .dtype = DType::bf16});
  all.push_back({.world = world,
                 .strategy = "3",
                 .global_batch = 2 * world - 1,
                 .recompute = true,
                 .wrap = {.blocks_per_unit = 2},
                 .dtype = DType::bf16});
  all.push_back({.world = world,
                 .strategy = "3",
                 .global_batch = 2 * world,
                 .dtype = DType::f16,
                 .loss_scale = {.initial = 0x1p60}});  // overflows at first
  return all;
}

/// A run on the device, against the host's; counts it if they differ on this rank.
Said compare(World& world, Truth truth, const models::Model& model, const Variant& v, int& wrong) {
  const auto body = [&](World& w) { return one_rank(w, model, v, {}); };
  const Said device = body(world), host = on_host(world.size(), world.rank(), body);
  if (agree(device, host, truth, v.dtype)) return device;
  std::printf("rank %d differs, %s\n  device %s\n  host   %s\n", world.rank(), v.str().c_str(), device.str().c_str(),
              host.str().c_str());
  ++wrong;
  return device;
}

/// Runs with frozen parameters, stored in the type of the run, as compare.
int compare_frozen(World& world, Truth truth) {
  int wrong = 0;
  for (const FrozenSet& set : frozen_sets)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      models::Model model = models::make(config_json({}), "test", dtype);
      freeze(model, set.frozen);
      for (ParamSpec& param : model.params)
        if (!param.trainable) param.storage_dtype = dtype;
      for (const char* strategy : {"2", "3"})
        (void)compare(world, truth, model,
                      {.world = world.size(),
                       .strategy = strategy,
                       .global_batch = 2 * world.size() - 1,
                       .recompute = dtype == DType::f32,
                       .selective = strategy[0] == '2',
                       .dtype = dtype},
                      wrong);
    }
  return wrong;
}

/// Every variant against the host's run; returns how many differ on this rank.
int compare(World& world, Truth truth, const models::Model& fp32, const models::Model& bf, const models::Model& half) {
  int wrong = 0;
  std::string first_of_stages;
  for (const Variant& v : variants(world.size())) {
    const models::Model& model = v.dtype == DType::f32 ? fp32 : v.dtype == DType::bf16 ? bf : half;
    const Said device = compare(world, truth, model, v, wrong);
    // Losses are equal at every ZeRO stage, whatever the order of sums on the device; hashes are of differently sized
    // shards.
    if (v.dtype != DType::f32 || v.reduce != shard::Reduce::each || v.group > 0) continue;
    Said stage = device;
    stage.hash = 0;
    if (first_of_stages.empty()) first_of_stages = stage.str();
    if (stage.str() != first_of_stages)
      std::printf("rank %d: ZeRO-%s is not as ZeRO-0\n", world.rank(), v.strategy.c_str()), ++wrong;
  }
  return wrong;
}

/// States, and activations, that are kept on the host, against the host's run without offload.
int compare_offload(World& world, Truth truth) {
  using shard::Tier;
  int wrong = 0;
  const auto compare_offloaded = [&](const models::Model& model, const Variant& resident, const Variant& v) {
    const Said device = one_rank(world, model, v, {});
    const Said host = on_host(world.size(), world.rank(), [&](World& w) { return one_rank(w, model, resident, {}); });
    if (agree(device, host, truth, v.dtype)) return;
    std::printf("rank %d differs with offload, %s\n  device %s\n  host   %s\n", world.rank(), v.str().c_str(),
                device.str().c_str(), host.str().c_str());
    ++wrong;
  };
  const std::string scratch = (std::filesystem::temp_directory_path() / "tessera-device-disk").string();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const models::Model model = models::make(config_json({.layers = 5}), "test", dtype);
    for (const char* strategy : {"0", "2", "3"})
      for (const Tier params : {Tier::device, Tier::host})
        for (const bool clips : {true, false}) {
          if (dtype == DType::f16 && !clips) continue;  // updates follow norm, which finds what overflows
          const Variant resident{.world = world.size(),
                                 .strategy = strategy,
                                 .global_batch = 4 * world.size() - 1,
                                 .dtype = dtype,
                                 .loss_scale = {.initial = 0x1p60},  // overflows at first
                                 .max_grad_norm = clips ? 1.0 : 0.0};
          Variant v = resident;
          v.placement = {params, Tier::host, Tier::host};
          v.updates_before_norm = !clips;
          v.offload_activations = clips;
          v.recompute = params == Tier::host;
          v.selective = dtype == DType::bf16 && v.recompute;
          compare_offloaded(model, resident, v);
          if (dtype != DType::bf16) continue;
          v.placement.optimizer = Tier::disk;
          v.nvme_path = scratch;
          compare_offloaded(model, resident, v);
        }
  }
  return wrong;
}

/// Adapters over a quantized base; with ZeRO-3 also with activations on the host.
int compare_quantized(World& world, Truth truth) {
  int wrong = 0;
  for (const auto& [format, dtype] : {std::pair{QuantFormat::nf4, DType::f32},
                                      {QuantFormat::nf4_single, DType::bf16},
                                      {QuantFormat::int8, DType::bf16}})
    for (const char* strategy : {"0", "2", "3"}) {
      models::Model model = models::make(qwen3_config, "test", dtype);
      models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.3});
      models::quantize(model, format);
      const Variant on_host_alone{
          .world = world.size(), .strategy = strategy, .global_batch = 2 * world.size() + 1, .dtype = dtype};
      Variant v = on_host_alone;
      v.offload_activations = strategy[0] == '3';
      const Said device = one_rank(world, model, v, {});
      const Said host =
          on_host(world.size(), world.rank(), [&](World& w) { return one_rank(w, model, on_host_alone, {}); });
      if (agree(device, host, truth, dtype)) continue;
      std::printf("rank %d differs with a quantized base (%s), %s\n  device %s\n  host   %s\n", world.rank(),
                  name_of(format), v.str().c_str(), device.str().c_str(), host.str().c_str());
      ++wrong;
    }
  return wrong;
}

/// Saved on a device and resumed on the host, and the reverse, against an uninterrupted run on the resuming side.
int cross(World& world, Truth truth, const models::Model& model) {
  const Variant v{.world = world.size(), .strategy = "3", .global_batch = 2 * world.size()};
  const std::string base = world.broadcast(
      (std::filesystem::temp_directory_path() / strfmt("tessera-device-%d", static_cast<int>(::getpid()))).string());
  const auto part = [&](const Files& files) { return [&, files](World& w) { return one_rank(w, model, v, files); }; };
  int wrong = 0;
  const auto same = [&](const char* what, const Said& a, const Said& b) {
    if (agree(a, b, truth, v.dtype)) return;
    std::printf("rank %d: %s\n  %s\n  %s\n", world.rank(), what, a.str().c_str(), b.str().c_str());
    ++wrong;
  };
  if (world.rank() == 0) std::filesystem::create_directories(base);
  world.barrier();
  (void)part({"", base + "/device", 0, 2})(world);
  if (world.rank() == 0) (void)on_host(world.size(), 0, part({"", base + "/host", 0, 2}));
  world.barrier();
  Said uninterrupted = part({})(world);
  uninterrupted.numbers.erase(uninterrupted.numbers.begin(), uninterrupted.numbers.begin() + 4);
  same("saved on the host, resumed on the device", part({base + "/host", "", 2, steps_of_run})(world), uninterrupted);
  same("saved on the device, resumed on the host",
       on_host(world.size(), world.rank(), part({base + "/device", "", 2, steps_of_run})), uninterrupted);
  world.barrier();
  if (world.rank() == 0) std::filesystem::remove_all(base);
  return wrong;
}

/// Choosing GEMM algorithms changes nothing else: on a simulated device every bit stays. With stored choices nothing is
/// timed, and bits repeat.
int choose(World& world, Truth truth, const models::Model& fp32, const models::Model& half) {
  int wrong = 0;
  for (const models::Model* model : {&fp32, &half})
    for (const char* strategy : {"3", "1"}) {
      const bool scaled = model == &half;
      Variant v{.world = world.size(), .strategy = strategy, .global_batch = 2 * world.size()};
      if (scaled) v.dtype = DType::f16, v.loss_scale.initial = 0x1p60;
      const Said without = one_rank(world, *model, v, {});
      Choosing first, second;
      const Said with = one_rank(world, *model, v, {}, &first);
      second.kept = first.chosen.text;
      const Said again = one_rank(world, *model, v, {}, &second);
      const bool same = agree(with, without, truth, v.dtype);
      const bool well = same && again.str() == with.str() && second.chosen.kept > 0 && second.chosen.timed == 0 &&
                        second.chosen.text == first.chosen.text;
      if (!well)
        std::printf(
            "rank %d: choosing shows, %s: %zu timed, then %zu kept and %zu timed\n  without %s\n  with    %s\n  again  "
            " %s\n",
            world.rank(), v.str().c_str(), first.chosen.timed, second.chosen.kept, second.chosen.timed,
            without.str().c_str(), with.str().c_str(), again.str().c_str());
      wrong += well ? 0 : 1;
      if (strategy[0] == '3' && !scaled && first.chosen.timed == 0) std::printf("nothing was timed\n"), ++wrong;
    }
  return wrong;
}

}  // namespace

int against_host_on_a_mesh(World& world, Truth truth) {
  const models::Model model = models::make(config_json({}), "test");
  int wrong = 0;
  for (const Variant& v : variants(world.size()))
    if (v.group > 0) (void)compare(world, truth, model, v, wrong);
  return wrong;
}

int against_host(World& world, Truth truth) {
  const std::string config = config_json({});
  const models::Model fp32 = models::make(config, "test"), bf = models::make(config, "test", DType::bf16),
                      half = models::make(config, "test", DType::f16);
  const int wrong = compare(world, truth, fp32, bf, half) + choose(world, truth, fp32, half);
  return wrong + compare_frozen(world, truth) + compare_offload(world, truth) + compare_quantized(world, truth) +
         cross(world, truth, models::make(qwen3_config, "test"));
}

}  // namespace tessera::test
