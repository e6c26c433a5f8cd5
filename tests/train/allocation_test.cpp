// Inside a step Tessera's own code allocates nothing; and the test would notice if it did.

#include <gtest/gtest.h>

#include "io/data/packing.hpp"
#include "runtime/infer/inference.hpp"
#include "tests/base/alloc_counter.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

std::int64_t allocations_in_steps(const Variant& v, const std::string& config = config_json({}), bool packed = false) {
  models::Model model = models::make(config, "test", v.dtype);
  const auto made = std::make_shared<RandomTokens>(400, 37);
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 4; end <= 400; end += 4) ends.push_back(end);
  const io::PackedStream documents(made, {0, ends}, v.tokens, io::Packing::binpack);
  const io::TokenStream& tokens = packed ? static_cast<const io::TokenStream&>(documents) : *made;
  std::int64_t counted = 0;
  run_local(
      v.world,
      [&](World& world) {
        train::TrainerOptions options = options_of(model, v, 9);
        options.run.packed = packed;
        train::Trainer trainer(world, options);
        trainer.initialise();
        const io::Sampler sampler(40, true, 1);
        (void)trainer.step(tokens, sampler, 0, v.global_batch);
        world.barrier();
        const auto before = alloc_count();
        for (int s = 1; s < 4; ++s) (void)trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
        const auto after = alloc_count();
        if (world.rank() == 0) counted = static_cast<std::int64_t>(after - before);
        world.barrier();
      },
      v.copies);
  return counted;
}

TEST(Allocation, NoneInAStep) {
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
          EXPECT_EQ(allocations_in_steps(v), 0) << v.str();
        }
}

TEST(Allocation, NoneInABf16Step) {
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
        EXPECT_EQ(allocations_in_steps(v), 0) << v.str();
      }
  EXPECT_EQ(allocations_in_steps({.world = 2, .dtype = DType::f16, .loss_scale = {.initial = 0x1p40}}),
            0);  // skipped steps
}

TEST(Allocation, NoneInAStepOfTheOtherFamilies) {
  for (const char* config : {qwen3_config, experts_config})
    for (const bool recompute : {false, true}) {
      const Variant v{.world = 2, .global_batch = 6, .micro_batch = 2, .recompute = recompute, .copies = recompute};
      EXPECT_EQ(allocations_in_steps(v, config), 0) << v.str();
    }
}

TEST(Allocation, NoneInAStepOfPackedSamples) {
  for (const std::string& config : {config_json({}), std::string(experts_config)})
    EXPECT_EQ(allocations_in_steps({.world = 2, .global_batch = 6, .micro_batch = 2, .recompute = true}, config,
                                   /*packed=*/true),
              0);
}

TEST(Allocation, NoneInAPassOfGeneration) {
  const models::Model model = models::make(config_json({}), "test");
  for (const char* strategy : {"1", "3"})
    for (const bool copies : {false, true}) {
      std::vector<std::uint64_t> seen;
      run_local(
          2,
          [&](World& world) {
            infer::GenerateRequest request;
            request.prompts = {{1, 2, 3}, {4}, {5, 6}, {7, 8, 9, 10}};
            request.max_new_tokens = 8;
            request.sampling = {.temperature = 1, .top_k = 20, .top_p = 0.9, .repetition_penalty = 1.1};
            if (world.rank() == 0) {
              seen.reserve(64);
              request.on_token = [&](std::size_t prompt, std::int32_t) {
                if (prompt == 0) seen.push_back(alloc_count());
              };
            }
            const infer::GenerationShape shape = infer::generation_shape(request, 2);
            infer::InferenceOptions options;
            options.run = {.purpose = plan::Purpose::generate,
                           .model = &model,
                           .strategy = shard::make_strategy(strategy, 2, 0, 2)};
            options.run.batch = {.global_batch = 4, .micro_batch = 2, .world = 2, .accumulation = 1};
            options.run.tokens = shape.tokens;
            options.run.cache_tokens = shape.cache_tokens;
            infer::Inference inference(world, options);
            inference.initialise(5);
            (void)inference.generate(request);
          },
          copies);
      ASSERT_EQ(seen.size(), 8U);
      EXPECT_EQ(seen[1], seen[7]) << "strategy " << strategy << " copies "
                                  << copies;  // from the second pass to the last
    }
}

TEST(Allocation, AnAllocationInACollectiveIsNoticed) {
  Variant v{.world = 2, .global_batch = 2};
  v.delay.disturb = [] { ::operator delete(::operator new(16)); };
  EXPECT_GE(allocations_in_steps(v), 3 * 8);  // three steps of four units: as many gathers and reduces, at the least
}

}  // namespace
}  // namespace tessera::test
