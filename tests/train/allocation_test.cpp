// SPDX-License-Identifier: Apache-2.0
// Inside a step Tessera's own code allocates nothing, and the test notices if it does. What libraries allocate
// (OpenBLAS in sgemm of small matrices, on CPUs with AVX-512; oneDNN at every call) is printed and bounded.

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>

#include "io/data/packing.hpp"
#include "runtime/exec/bound_schedule.hpp"
#include "runtime/exec/run_context.hpp"
#include "runtime/infer/inference.hpp"
#include "tests/base/alloc_counter.hpp"
#include "tests/io/files.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

/// Bytes that libraries may hold during a step of these small models.
constexpr std::int64_t library_bound = std::int64_t{1} << 20;

/// What the steps, or passes, under a watch have allocated.
struct Allocations {
  std::int64_t tessera = 0, libraries = 0, library_bytes = 0, peak_library_bytes = 0;
};
Allocations since(const AllocWatch& watch) {
  return {watch.tessera(), watch.libraries(), watch.library_bytes(), watch.peak_library_bytes()};
}

/// Prints, at the end of a test, the most that libraries have allocated in one of its cases.
class Allocation : public testing::Test {
 protected:
  void expect_none(const Allocations& made, const std::string& about) {
    EXPECT_EQ(made.tessera, 0) << about;
    EXPECT_LE(made.peak_library_bytes, library_bound) << about;
    EXPECT_EQ(made.library_bytes, 0) << about << ": libraries keep what they allocate in a step";
    if (made.libraries > most_.libraries) most_ = made;
  }
  void TearDown() override {
    std::printf("libraries: up to %lld allocations, %lld bytes at once\n", static_cast<long long>(most_.libraries),
                static_cast<long long>(most_.peak_library_bytes));
  }

 private:
  Allocations most_;
};

Allocations allocations_in_steps(const Variant& v, const std::string& config = config_json({}), bool packed = false) {
  models::Model model = models::make(config, "test", v.dtype);
  const auto made = std::make_shared<RandomTokens>(400, 37);
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 4; end <= 400; end += 4) ends.push_back(end);
  const io::PackedStream documents(made, {0, ends}, v.tokens, io::Packing::binpack);
  const io::TokenStream& tokens = packed ? static_cast<const io::TokenStream&>(documents) : *made;
  Allocations made_in_steps;
  run_local(
      v.world,
      [&](World& world) {
        train::TrainerOptions options = options_of(model, v, 9);
        options.run.packed = packed;
        DelayedWorld delayed_world(world, v.delay);
        train::Trainer trainer(delayed_world, options);
        trainer.initialize();
        const io::Sampler sampler(40, true, 1);
        (void)trainer.step(tokens, sampler, 0, v.global_batch);
        world.barrier();
        std::optional<AllocWatch> watch;
        if (world.rank() == 0) watch.emplace();
        world.barrier();
        for (int s = 1; s < 4; ++s) (void)trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
        world.barrier();
        if (watch) made_in_steps = since(*watch);
      },
      v.copies);
  return made_in_steps;
}

TEST_F(Allocation, NoneInAStep) {
  for (const char* strategy : {"0", "1", "2", "3"})
    for (const bool copies : {false, true})
      for (const std::int64_t accumulation : {1, 3})
        for (const bool recompute : {false, true}) {
          const Variant v{.world = 2,
                          .strategy = strategy,
                          .global_batch = 2 * accumulation,
                          .recompute = recompute,
                          .reproducible = accumulation == 3,
                          .copies = copies};
          expect_none(allocations_in_steps(v), v.str());
        }
}

TEST_F(Allocation, NoneInABf16Step) {
  for (const char* strategy : {"0", "2", "3"})
    for (const bool copies : {false, true})
      for (const DType reduce_dtype : {DType::f32, DType::bf16}) {
        const Variant v{.world = 2,
                        .strategy = strategy,
                        .global_batch = 6,
                        .reproducible = copies,
                        .copies = copies,
                        .dtype = DType::bf16,
                        .reduce_dtype = reduce_dtype};
        expect_none(allocations_in_steps(v), v.str());
      }
  expect_none(
      allocations_in_steps({.world = 2, .global_batch = 6, .micro_batch = 2, .dtype = DType::bf16}, experts_config),
      "experts");  // whose GEMMs have other numbers of rows in every step
  expect_none(allocations_in_steps({.world = 2, .dtype = DType::f16, .loss_scale = {.initial = 0x1p40}}),
              "skipped steps");
}

TEST_F(Allocation, NoneInAStepOfTheOtherFamilies) {
  for (const char* config : {qwen3_config, experts_config})
    for (const bool recompute : {false, true}) {
      const Variant v{.world = 2, .global_batch = 6, .micro_batch = 2, .recompute = recompute, .copies = recompute};
      expect_none(allocations_in_steps(v, config), v.str());
    }
}

TEST_F(Allocation, NoneInAStepOfPackedSamples) {
  for (const std::string& config : {config_json({}), std::string(experts_config)})
    expect_none(allocations_in_steps({.world = 2, .global_batch = 6, .micro_batch = 2, .recompute = true}, config,
                                     /*packed=*/true),
                "packed");
}

TEST_F(Allocation, NoneInAStepWithOffloadToTheHost) {
  using shard::Tier;
  for (const char* strategy : {"0", "3"})
    for (const bool recompute : {false, true})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Variant v{.world = 2, .strategy = strategy, .global_batch = 6, .recompute = recompute, .dtype = dtype};
        v.placement = {strategy[0] == '3' ? Tier::host : Tier::device, Tier::host, Tier::host};
        v.offload_activations = true;
        expect_none(allocations_in_steps(v, config_json({.layers = 5})), v.str());
      }
}

TEST_F(Allocation, NoneInAStepWithInt8Collectives) {
  for (const char* strategy : {"0", "2", "3"})
    for (const bool copies : {false, true}) {
      Variant v{.world = 2, .strategy = strategy, .global_batch = 6, .copies = copies};
      v.compression = {
          .gradients = true,
          .gathers = strategy[0] == '3' ? shard::Compression::Gathers::all : shard::Compression::Gathers::none,
          .everywhere = true,
          .error_feedback = true};
      expect_none(allocations_in_steps(v), v.str());
    }
}

/// Transfers have small records. A step of a rank has some 20 of them, of one block or two for each state.
TEST_F(Allocation, FewInAStepWithStatesOnDisk) {
  using shard::Tier;
  constexpr std::int64_t most = 3 * 2 * 500;  // in three steps of two ranks
  const TempDir folder(TempDir::Storage::memory);
  for (const shard::StatePlacement& placement :
       {shard::StatePlacement{Tier::device, Tier::disk, Tier::disk}, {Tier::disk, Tier::disk, Tier::disk}}) {
    Variant v{.world = 2, .global_batch = 6, .dtype = DType::bf16};
    v.placement = placement;
    v.nvme_path = folder.path();
    Allocations made = allocations_in_steps(v);
    EXPECT_LE(made.tessera, most) << v.str();
    made.tessera = 0;
    expect_none(made, v.str());
  }
}

TEST_F(Allocation, NoneInAPassOfGeneration) {
  const models::Model model = models::make(config_json({}), "test");
  for (const char* strategy : {"1", "3"})
    for (const bool copies : {false, true}) {
      int tokens = 0;
      std::optional<AllocWatch> watch;
      Allocations made;
      run_local(
          2,
          [&](World& world) {
            infer::GenerateRequest request;
            request.prompts = {{1, 2, 3}, {4}, {5, 6}, {7, 8, 9, 10}};
            request.max_new_tokens = 8;
            request.sampling = {.temperature = 1, .top_k = 20, .top_p = 0.9, .repetition_penalty = 1.1};
            if (world.rank() == 0) {
              request.on_token = [&](std::size_t prompt, std::int32_t) {  // from the second pass to the last
                if (prompt != 0) return;
                if (++tokens == 2) watch.emplace();
                if (tokens == 8) made = since(*watch);
              };
            }
            const infer::GenerationShape shape = infer::generation_shape(request, 2);
            infer::InferenceOptions options;
            options.run = {.purpose = plan::Purpose::generate,
                           .model = &model,
                           .strategy = shard::make_strategy(strategy, 2, 0, 2)};
            options.run.batch = {.global_batch = 4, .micro_batch = 2, .data_ranks = 2, .accumulation = 1};
            options.run.tokens = shape.tokens;
            options.run.cache_tokens = shape.cache_tokens;
            infer::Inference inference(world, options);
            inference.initialize(5);
            (void)inference.generate(request);
          },
          copies);
      ASSERT_EQ(tokens, 8);
      expect_none(made, "generation, strategy " + std::string(strategy) + (copies ? ", copies" : ""));
    }
}

/// The steps' own count, with f called in every collective.
std::int64_t counted_with(void (*f)()) {
  Variant v{.world = 2, .global_batch = 2};
  v.delay.disturb = f;
  return allocations_in_steps(v).tessera;
}

TEST_F(Allocation, AnAllocationInACollectiveIsNoticed) {
  constexpr int collectives = 3 * 8;  // three steps of four units: as many gathers and reduces, at the least
  EXPECT_GE(counted_with([] { ::operator delete(::operator new(16)); }), collectives);
  EXPECT_GE(counted_with([] { (void)Error(ExitCode::usage, "one"); }), collectives);  // in libtessera_base
}

/// Allocations of binding the training schedule, for each instruction that it has more than with one micro-batch.
double allocations_of_bind(const std::string& config, const char* strategy) {
  const models::Model model = models::make(config, "test");
  double each = 0;
  run_local(1, [&](World& world) {
    const auto bind = [&](std::int64_t accumulation) {
      const Variant v{.world = 1, .strategy = strategy, .global_batch = accumulation};
      exec::RunContext run(world, options_of(model, v, 1).run, "", {});
      exec::Executor executor(
          {.plan = &run.plan, .manager = &run.manager, .optimizer = nullptr, .arena = run.arena.get()});
      const std::int64_t before = alloc_count_here();
      const auto bound = executor.bind(run.plan.train, models::Phase::train);
      return std::pair(alloc_count_here() - before, run.plan.train.list.size());
    };
    const auto [one, short_list] = bind(1);
    const auto [many, long_list] = bind(9);
    each = static_cast<double>(many - one) / static_cast<double>(long_list - short_list);
  });
  return each;
}

// A slot is looked up by name once for each schedule, and not by each instruction for each of its parameters: the names
// of the units of experts, with 15 or 45 parameters, allocate.
TEST_F(Allocation, BindingLooksUpEachSlotOnce) {
  const std::string few = experts_config, count = "\"num_experts\": 5";
  std::string more = few;
  more.replace(more.find(count), count.size(), "\"num_experts\": 15");
  for (const char* strategy : {"0", "2", "3"}) {
    const double with_few = allocations_of_bind(few, strategy), with_more = allocations_of_bind(more, strategy);
    EXPECT_LT(with_more, with_few + 2) << "ZeRO-" << strategy << ", " << with_few << " with few parameters";
  }
}

}  // namespace
}  // namespace tessera::test
