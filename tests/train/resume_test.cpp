// SPDX-License-Identifier: Apache-2.0
// Resuming, in the same or another world. The loaded state is the same bit for bit. In an equal world, or with
// reproducible in any power of two, so is the rest of the run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "io/checkpoint/checkpoint.hpp"
#include "kernels/threads.hpp"
#include "tests/io/files.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

constexpr int all_steps = 6, half = 3;
constexpr std::int64_t batch = 8;

struct Record {
  std::vector<double> numbers;            // of each step: loss, norm, learning rate, step, tokens
  std::vector<std::vector<float>> state;  // unsharded, in canonical order, after the last step
  std::vector<std::uint64_t> hashes;      // of the ranks
  std::int64_t skipped = 0;               // after the last step
  std::optional<train::LossScaleState> loss_scale;
};
const models::Model& model(DType dtype = DType::f32) {
  static const models::Model made[] = {models::make(config_json({}), "test"),
                                       models::make(config_json({}), "test", DType::bf16),
                                       models::make(config_json({}), "test", DType::f16)};
  return made[dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 : 2];
}
const RandomTokens& tokens() {
  static const RandomTokens made(900, 37);
  return made;
}

std::string difference(const Record& a, const Record& b, std::size_t skip_numbers = 0) {
  const auto bits = [](const char* what, const auto& x, const auto& y) -> std::string {
    if (x.size() != y.size()) return strfmt("%s: %zu and %zu of them", what, x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      if (std::memcmp(&x[i], &y[i], sizeof x[i]) != 0)
        return strfmt("%s %zu: %.17g and %.17g", what, i, static_cast<double>(x[i]), static_cast<double>(y[i]));
    return {};
  };
  std::string text = bits(
      "number", std::vector(a.numbers.begin() + static_cast<std::ptrdiff_t>(skip_numbers), a.numbers.end()), b.numbers);
  for (std::size_t v = 0; v < a.state.size() && text.empty(); ++v)
    text = bits(strfmt("vector %zu of the state", v).c_str(), a.state[v], b.state[v]);
  return text;
}

void collect(train::Trainer& trainer, Record& run) {
  const auto& layout = trainer.plan().layout;
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;
  for (const auto& param : model().params) offsets.push_back(std::exchange(total, total + param.numel()));
  const io::TrainingState state = trainer.state();
  for (const auto& view : state.shards)
    for (std::size_t v = 0; v < run.state.size(); ++v)
      for (const auto& s : layout.segments(view.unit, view.shard))
        std::memcpy(run.state[v].data() + offsets[static_cast<std::size_t>(s.param)] + s.param_offset,
                    view.data[v].as<float>() + (s.unit_offset - view.shard * layout.shard_numel(view.unit)),
                    static_cast<std::size_t>(s.length) * sizeof(float));
}

io::SaveRequest request_of(train::Trainer& trainer, const std::string& directory, std::int64_t step) {
  io::SaveRequest request;
  request.directory = directory;
  request.step = step;
  request.params = model().params;
  request.layout = &trainer.plan().layout;
  request.state = trainer.state();
  return request;
}

/// An asynchronous save during the steps, as in jobs.
class Saver : public exec::StepCallback {
 public:
  Saver(World& world, const io::SaveRequest& request) : save(world, request) {}
  shard::ControlFlags flags() override { return {}; }
  void before_update(int unit) override { save.before_update(unit); }
  io::CheckpointSave save;
};

struct Part {
  std::string from, to;  // load from, save to at the end; "": initialize, do not save
  int first = 0, last = all_steps;
  bool in_background = false;     // saves after step `half`, while training goes on
  const Record* saved = nullptr;  // what the run kept beside the tensors that it loads
};

Record train_part(Variant v, const Part& part) {
  kernels::set_threads(1);
  v.global_batch = batch;
  Record run;
  run.hashes.resize(static_cast<std::size_t>(v.world));
  std::int64_t total = 0;
  for (const auto& param : model().params) total += param.numel();
  const std::vector<StateSpec> states = train::optimizer_states(v.optimizer);
  const bool all_fp32 = std::ranges::all_of(states, [](const StateSpec& s) { return s == StateSpec{.name = s.name}; });
  run.state.assign(all_fp32 ? 1 + states.size() : 1, std::vector<float>(static_cast<std::size_t>(total)));
  const io::Sampler sampler(io::count_samples(tokens().size(), v.tokens).samples, true, 11);
  run_local(v.world, [&](World& world) {
    auto options = options_of(model(v.dtype), v, all_steps);
    if (part.in_background) options.run.snapshot = plan::Snapshot::all;
    train::Trainer trainer(world, options);
    if (part.from.empty()) {
      trainer.initialize();
    } else {
      const io::CheckpointReader reader(world, part.from);
      EXPECT_EQ(reader.manifest().step, part.first);
      (void)reader.load(model().params, trainer.plan().layout, trainer.state());
      trainer.parameters_changed();
      trainer.resume_at({part.first, part.saved != nullptr ? part.saved->skipped : 0});
      if (part.saved != nullptr && part.saved->loss_scale) trainer.resume_loss_scale(*part.saved->loss_scale);
    }
    std::unique_ptr<Saver> saver;
    for (int s = part.first; s < part.last; ++s) {
      const auto report = trainer.step(tokens(), sampler, s * batch, batch);
      if (world.rank() == 0)
        for (const double x : {report.loss, report.grad_norm, report.learning_rate, static_cast<double>(report.step),
                               static_cast<double>(report.tokens)})
          run.numbers.push_back(x);
      if (part.in_background && s + 1 == half) {
        auto request = request_of(trainer, part.to, half);
        request.snapshot = trainer.slot_memory({SlotUse::snapshot});
        saver = std::make_unique<Saver>(world, request);
        trainer.set_callback(saver.get());
      }
    }
    if (saver) {
      trainer.set_callback(nullptr);
      (void)saver->save.commit();
    } else if (!part.to.empty()) {
      io::CheckpointSave save(world, request_of(trainer, part.to, part.last));
      (void)save.commit();
    }
    world.barrier();
    for (int r = 0; r < world.size(); ++r) {  // replicas save the same bytes: one after another
      if (world.rank() == r) collect(trainer, run);
      world.barrier();
    }
    run.hashes[static_cast<std::size_t>(world.rank())] = trainer.state_hash();
    if (world.rank() == 0) run.skipped = trainer.skipped_steps(), run.loss_scale = trainer.loss_scale();
    EXPECT_EQ(trainer.arena().broken_canary(), "");
  });
  return run;
}

std::vector<std::string> state_files(const std::string& directory) {
  std::vector<std::string> bytes;
  for (const auto& file : io::read_manifest(directory).files) bytes.push_back(bytes_of(directory + "/" + file.name));
  return bytes;
}

constexpr std::size_t numbers_of_half = 5 * half;

TEST(Resume, AtEqualWorldContinuesBitForBit) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string there = folder / "checkpoint-3";
  for (const Variant& v : {Variant{.world = 3, .strategy = "0"}, Variant{.world = 3, .strategy = "1"},
                           Variant{.world = 2, .strategy = "2"}, Variant{.world = 3, .strategy = "3"},
                           Variant{.world = 4, .strategy = "HYBRID_SHARD", .group = 2},
                           Variant{.world = 4,
                           .strategy = "3",
                           .unit_strategies = {{"embed", "NO_SHARD"}, {"h.0", "HYBRID_SHARD"}},
                           .ranks_per_node = 2}}) {
    SCOPED_TRACE(v.str());
    const Record uninterrupted = train_part(v, {});
    (void)train_part(v, {.to = there, .last = half});
    const Record rest = train_part(v, {.from = there, .first = half});
    EXPECT_EQ(difference(uninterrupted, rest, numbers_of_half), "");
    EXPECT_EQ(uninterrupted.hashes, rest.hashes);
    EXPECT_NE(uninterrupted.numbers[numbers_of_half], uninterrupted.numbers[0]);
  }
}

// Checkpoints know parameters, not units: their bytes are the same, and a run of other units continues.
TEST(Resume, WithOtherUnitsContinuesBitForBit) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string there = folder / "checkpoint-3", again = folder / "again";
  for (const auto kind : {train::OptimizerKind::adamw, train::OptimizerKind::adamw_8bit}) {
    Variant v{.world = 3, .strategy = "3"};
    v.optimizer.kind = kind;
    const Record uninterrupted = train_part(v, {});
    (void)train_part(v, {.to = there, .last = half});
    for (const shard::WrapPolicy& wrap :
         {shard::WrapPolicy{.blocks_per_unit = 2}, {.kind = shard::WrapPolicy::Kind::model}}) {
      Variant other = v;
      other.wrap = wrap;
      EXPECT_EQ(difference(uninterrupted, train_part(other, {.from = there, .first = half}), numbers_of_half), "");
      (void)train_part(other, {.to = again, .last = half});
      EXPECT_TRUE(state_files(there) == state_files(again));
      (void)train_part(other, {.to = again, .in_background = true});
      EXPECT_TRUE(state_files(there) == state_files(again));
    }
  }
}

TEST(Resume, ContinuesBitForBitInBf16) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string there = folder / "checkpoint-3";
  for (Variant v :
       {Variant{.world = 3, .strategy = "0", .dtype = DType::bf16},
        Variant{.world = 3, .strategy = "3", .dtype = DType::bf16},
        Variant{.world = 2, .strategy = "2", .copies = true, .dtype = DType::bf16, .reduce_dtype = DType::bf16},
        Variant{.world = 2, .strategy = "3", .dtype = DType::f16}}) {
    if (v.dtype == DType::f16)
      v.loss_scale = {.initial = 0x1p23, .window = 2};  // some steps overflow before half, and the scale doubles again
    SCOPED_TRACE(v.str());
    const Record uninterrupted = train_part(v, {});
    const Record before = train_part(v, {.to = there, .last = half});
    const Record rest = train_part(v, {.from = there, .first = half, .saved = &before});
    EXPECT_EQ(difference(uninterrupted, rest, numbers_of_half), "");
    EXPECT_EQ(uninterrupted.hashes, rest.hashes);
    EXPECT_EQ(uninterrupted.skipped, rest.skipped);
    EXPECT_EQ(uninterrupted.loss_scale, rest.loss_scale);
    EXPECT_EQ(before.skipped > 0, v.dtype == DType::f16);
    // The state is fp32: it loads into a run of another precision, bit for bit.
    Variant other = v;
    other.dtype = v.dtype == DType::f16 ? DType::bf16 : DType::f32;
    other.reduce_dtype = DType::f32;
    const Record loaded = train_part(other, {.from = there, .first = half, .last = half, .saved = &before});
    EXPECT_EQ(difference(before, loaded, before.numbers.size()), "");
  }
}

TEST(Resume, SgdContinuesAndItsCheckpointsAreTheSameBytesInEveryWorld) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string there = folder / "checkpoint-3", again = folder / "again";
  for (const double momentum : {0.9, 0.0}) {
    Variant v{.world = 3, .strategy = "3", .learning_rate = 0.1};
    v.optimizer = {.kind = train::OptimizerKind::sgd, .momentum = momentum, .nesterov = momentum > 0};
    const Record uninterrupted = train_part(v, {});
    const Record before = train_part(v, {.to = there, .last = half});
    EXPECT_EQ(before.state.size(), momentum > 0 ? 2u : 1u);
    EXPECT_EQ(io::read_manifest(there).optimizer, momentum > 0);
    EXPECT_EQ(difference(uninterrupted, train_part(v, {.from = there, .first = half}), numbers_of_half), "");
    for (const auto& [world, strategy] : {std::pair{1, "3"}, {4, "1"}, {2, "0"}}) {
      Variant other = v;
      other.world = world;
      other.strategy = strategy;
      const Record loaded = train_part(other, {.from = there, .to = again, .first = half, .last = half});
      EXPECT_EQ(difference(before, loaded, before.numbers.size()), "");
      EXPECT_TRUE(state_files(there) == state_files(again)) << other.str();
    }
  }
}

TEST(Resume, EightBitStatesContinueAndAreTheSameBytesInEveryWorld) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string there = folder / "checkpoint-3", again = folder / "again", behind = folder / "behind";
  Variant v{.world = 4, .strategy = "HYBRID_SHARD", .group = 2};
  v.optimizer.kind = train::OptimizerKind::adamw_8bit;
  const Record uninterrupted = train_part(v, {});
  const Record before = train_part(v, {.to = there, .last = half});
  const Record rest = train_part(v, {.from = there, .first = half});
  EXPECT_EQ(difference(uninterrupted, rest, numbers_of_half), "");
  EXPECT_EQ(uninterrupted.hashes, rest.hashes);
  (void)train_part(v, {.to = behind, .in_background = true});
  EXPECT_TRUE(state_files(there) == state_files(behind));
  for (const auto& [world, strategy] : {std::pair{1, "3"}, {3, "1"}, {2, "0"}, {5, "3"}}) {
    Variant other = v;
    other.world = world;
    other.strategy = strategy;
    other.group = 0;
    const Record loaded = train_part(other, {.from = there, .to = again, .first = half, .last = half});
    EXPECT_EQ(difference(before, loaded, before.numbers.size()), "");
    EXPECT_TRUE(state_files(there) == state_files(again)) << other.str();
  }
}

// States that start at zero after a resume count their updates from there: AdamW's first update has the length of the
// learning rate again.
TEST(Resume, StatesThatStartAtZeroCountTheirUpdatesFromThere) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string there = folder / "checkpoint-3";
  (void)train_part({.weight_decay = 0}, {.to = there, .last = half});
  run_local(1, [&](World& world) {
    train::Trainer trainer(world, options_of(model(), {.weight_decay = 0}, all_steps));
    io::TrainingState state = trainer.state();
    state.states.clear();
    (void)io::CheckpointReader(world, there).load(model().params, trainer.plan().layout, state);
    trainer.parameters_changed();
    trainer.resume_at({.steps = half, .states_from = half});
    const std::vector<float> before(state.shards[0].data[0].as<float>(), state.shards[0].data[0].as<float>() + 64);
    const io::Sampler sampler(io::count_samples(tokens().size(), 9).samples, true, 11);
    const double rate = trainer.step(tokens(), sampler, half * batch, 4).learning_rate;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double moved = std::abs(static_cast<double>(state.shards[0].data[0].as<float>()[i] - before[i]));
      EXPECT_TRUE(moved < 1e-12 || std::abs(moved - rate) < 1e-2 * rate) << i << ": " << moved << " of " << rate;
    }
  });
}

TEST(Resume, InBf16CheckpointsAreTheSameBytesInEveryWorld) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string one = folder / "one", other = folder / "other";
  const Variant base{.world = 1, .reproducible = true, .dtype = DType::bf16, .reduce_dtype = DType::bf16};
  (void)train_part(base, {.to = one, .last = half});
  for (const auto& [world, strategy] : {std::pair{2, "0"}, {4, "3"}, {4, "2"}}) {
    Variant v = base;
    v.world = world;
    v.strategy = strategy;
    (void)train_part(v, {.to = other, .last = half});
    EXPECT_TRUE(state_files(one) == state_files(other)) << v.str();
  }
}

TEST(Resume, AnotherMeshLoadsTheSameStateAndSavesTheSameBytes) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string first = folder / "checkpoint-3", again = folder / "again", back = folder / "back";
  const Variant four{.world = 4, .strategy = "3"};
  const Record saved = train_part(four, {.to = first, .last = half});
  const Record uninterrupted = train_part(four, {});
  for (const Variant& v : {Variant{.world = 3, .strategy = "1"}, Variant{.world = 3, .strategy = "2"},
                           Variant{.world = 4, .strategy = "HYBRID_SHARD", .group = 2}, Variant{.world = 1},
                           Variant{.world = 2, .strategy = "0"}, Variant{.world = 5, .strategy = "3"},
                           Variant{.world = 8, .strategy = "HYBRID_SHARD", .group = 2}}) {
    SCOPED_TRACE(v.str());
    const Record loaded = train_part(v, {.from = first, .to = again, .first = half, .last = half});
    EXPECT_EQ(difference(saved, loaded, saved.numbers.size()), "");
    EXPECT_TRUE(state_files(first) == state_files(again));
    const Record returned = train_part(four, {.from = again, .to = back, .first = half, .last = half});
    EXPECT_EQ(difference(saved, returned, saved.numbers.size()), "");
    EXPECT_EQ(saved.hashes, returned.hashes);
    // Training continues: the same data and learning rate, sums in another order.
    const Record rest = train_part(v, {.from = first, .first = half});
    for (std::size_t i = 0; i < rest.numbers.size(); ++i)
      EXPECT_NEAR(rest.numbers[i], uninterrupted.numbers[numbers_of_half + i],
                  1e-4 * std::abs(uninterrupted.numbers[numbers_of_half + i]))
          << i;
    for (std::size_t i = 2; i < rest.numbers.size(); i += 5)  // learning rate, step and tokens exactly
      for (std::size_t k = 0; k < 3; ++k)
        EXPECT_EQ(rest.numbers[i + k], uninterrupted.numbers[numbers_of_half + i + k]);
  }
}

TEST(Resume, ReproducibleContinuesBitForBitAtAnyPowerOfTwo) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string there = folder / "checkpoint-3";
  const Record uninterrupted = train_part({.world = 4, .strategy = "3", .reproducible = true}, {});
  (void)train_part({.world = 4, .strategy = "3", .reproducible = true}, {.to = there, .last = half});
  for (Variant v :
       {Variant{.world = 1}, Variant{.world = 2, .strategy = "1"}, Variant{.world = 8, .strategy = "3"},
        Variant{.world = 4, .strategy = "0"}, Variant{.world = 4, .strategy = "HYBRID_SHARD", .group = 2}}) {
    v.reproducible = true;
    SCOPED_TRACE(v.str());
    EXPECT_EQ(difference(uninterrupted, train_part(v, {.from = there, .first = half}), numbers_of_half), "");
  }
}

TEST(Resume, AsyncSaveStoresItsStepAndChangesNothing) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string waited = folder / "checkpoint-3", behind = folder / "behind";
  for (const Variant& v :
       {Variant{.world = 3, .strategy = "3"}, Variant{.world = 4, .strategy = "HYBRID_SHARD", .group = 2},
        Variant{.world = 2, .strategy = "0"}}) {
    SCOPED_TRACE(v.str());
    (void)train_part(v, {.to = waited, .last = half});
    const Record uninterrupted = train_part(v, {});
    const Record background = train_part(v, {.to = behind, .in_background = true});
    EXPECT_EQ(difference(uninterrupted, background), "");
    EXPECT_TRUE(state_files(waited) == state_files(behind));
    EXPECT_EQ(io::read_manifest(behind).training, io::read_manifest(waited).training);
  }
}

}  // namespace
}  // namespace tessera::test
