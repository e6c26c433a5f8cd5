// SPDX-License-Identifier: Apache-2.0
// Memory of modules: bounds of saved bytes per token, and no access outside the requested bytes (Runner's guards).
#include <gtest/gtest.h>

#include "models/scratch_allocator.hpp"
#include "runner.hpp"

namespace tessera::test {
namespace {

using models::BatchShape;
using models::Phase;
using models::ScratchAllocator;

const char* const gpt2_124m =
    R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12,
                                  "n_head": 12})";

TEST(Memory, ABlockKeepsNineWidthsPerTokenAndWhatNormsAndSoftmaxNeed) {
  const models::Model model = models::make(gpt2_124m, "gpt2");
  const BatchShape shape{4, 256};
  const std::size_t rows = 4 * 256;
  // qkv 3·H, heads' output H, middle H, before GELU 4·H; mean and rstd of two norms; one softmax denominator per head
  EXPECT_EQ(model.modules[1]->saved_bytes(shape, DType::f32), rows * 4 * (9 * 768 + 4 + 12));
  EXPECT_EQ(model.modules[1]->saved_bytes(shape, DType::f64), 2 * model.modules[1]->saved_bytes(shape, DType::f32));
  EXPECT_EQ(model.modules.front()->saved_bytes(shape, DType::f32), 0U);
  EXPECT_EQ(model.modules.back()->saved_bytes(shape, DType::f32), 0U);
}

TEST(Memory, SelectiveCheckpointingKeepsFiveOfTheNineWidths) {
  const models::Model model = models::make(gpt2_124m, "gpt2");
  const BatchShape shape{4, 256};
  const std::size_t rows = 4 * 256;
  const models::SavedBytes parts = model.modules[1]->split_saved_bytes(shape, DType::f32);
  EXPECT_EQ(parts.kept, rows * 4 * (5 * 768 + 4 + 12));  // heads' output H, before GELU 4·H, statistics
  EXPECT_EQ(parts.recomputed, rows * 4 * 4 * 768);       // qkv 3·H, middle H
  EXPECT_EQ(parts.total(), model.modules[1]->saved_bytes(shape, DType::f32));
}

TEST(Memory, ExpertsOfTheirOwnAreKept) {
  const models::Model model = models::make(
      R"({"model_type": "qwen3_moe", "vocab_size": 32, "max_position_embeddings": 16, "hidden_size": 8,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
          "intermediate_size": 8, "moe_intermediate_size": 4, "num_experts": 4, "num_experts_per_tok": 2})",
      "model");
  ASSERT_EQ(model.modules.size(), 4U);
  EXPECT_TRUE(model.modules[1]->split_saved_bytes({2, 8}, DType::f32).split());
  EXPECT_EQ(model.modules[2]->split_saved_bytes({2, 8}, DType::f32).recomputed, 0U);
}

TEST(Memory, WorkspaceOfABlockIsUnderTenWidthsPerToken) {
  const models::Model model = models::make(gpt2_124m, "gpt2");
  const BatchShape shape{4, 256};
  const std::size_t width = std::size_t{4} * 256 * 4 * 768;
  EXPECT_LE(model.modules[1]->workspace_bytes(shape, DType::f32, Phase::train), 10 * width);
  EXPECT_LE(model.modules[1]->workspace_bytes(shape, DType::f32, Phase::eval), 7 * width + width / 2);
  // no (B·T, V) buffer in the head
  EXPECT_LT(model.modules.back()->workspace_bytes(shape, DType::f32, Phase::train),
            std::size_t{4} * 256 * 50257 * 4 / 2);
}

/// A micro-batch may have fewer rows, and shorter ones, than the plan's: memory is planned for the largest alone.
TEST(Memory, SmallerMicroBatchesNeverAskForMore) {
  const char* const experts =
      R"({"model_type": "qwen3_moe", "vocab_size": 32000, "max_position_embeddings": 2048, "hidden_size": 64, "num_hidden_layers": 1,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "moe_intermediate_size": 32,
          "num_experts": 8, "num_experts_per_tok": 2})";
  for (const char* config : {gpt2_124m, experts}) {
    const models::Model model = models::make(config, "model");
    for (const auto& module : model.modules)
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const Phase phase : {Phase::train, Phase::eval}) {
          std::size_t saved = 0, workspace = 0;
          for (std::int64_t tokens = 1; tokens <= 1024; tokens += tokens == 1 ? 15 : 16) {
            const BatchShape shape{1, tokens};
            EXPECT_LE(saved, module->saved_bytes(shape, dtype)) << module->name() << ' ' << tokens;
            EXPECT_LE(workspace, module->workspace_bytes(shape, dtype, phase)) << module->name() << ' ' << tokens;
            saved = module->saved_bytes(shape, dtype), workspace = module->workspace_bytes(shape, dtype, phase);
            EXPECT_LE(workspace, module->workspace_bytes({2, tokens}, dtype, phase)) << module->name() << ' ' << tokens;
          }
        }
  }
}

TEST(Memory, GuardsAreIntactOnOddShapes) {
  const models::Model model =
      models::make(R"({"model_type": "gpt2", "vocab_size": 37, "n_positions": 19, "n_embd": 35, "n_layer": 2,
                                               "n_head": 5, "n_inner": 13})",
                   "odd");
  Runner runner(model, {3, 17});
  runner.randomize(1);
  for (const BatchShape shape : {BatchShape{3, 17}, BatchShape{1, 17}, BatchShape{2, 1}}) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < shape.batch * shape.tokens; ++i) ids.push_back(static_cast<std::int32_t>(i * 7 % 37));
    runner.sums = {};
    const double trained =
        runner.train(shape, ids, ids, 0.1);  // checks guards, and that no NaN of the initial fill is read
    EXPECT_TRUE(trained > 0 && trained < 100) << trained;
    runner.sums = {};
    EXPECT_NEAR(runner.evaluate(shape, ids, ids), trained, 1e-5 * trained);
    for (const double l : runner.logits(shape, ids)) EXPECT_TRUE(l == l);
    for (std::size_t p = 0; p < model.params.size(); ++p)
      for (const double g : values(runner.grad(static_cast<int>(p)))) ASSERT_TRUE(g == g) << model.params[p].name;
  }
}

TEST(Memory, GuardsNoticeASingleByte) {
  Guarded block(100);
  EXPECT_TRUE(block.intact());
  block.bytes().as<std::uint8_t>()[100] ^= 1;
  EXPECT_FALSE(block.intact());
}

TEST(ScratchAllocator, SizesAsItCuts) {
  const auto cut = [](ScratchAllocator& allocator) {
    const TensorView a = allocator.take(DType::f32, {3, 5});
    const std::size_t mark = allocator.mark();
    (void)allocator.take(DType::u8, {200});
    allocator.rewind(mark);
    return std::pair{a, allocator.take(DType::f64, {2})};
  };
  ScratchAllocator sizing;
  (void)cut(sizing);
  EXPECT_EQ(sizing.bytes(), 64U + 256U);
  Guarded exact(sizing.bytes());
  ScratchAllocator allocator(exact.bytes());
  const auto [a, b] = cut(allocator);
  EXPECT_EQ(a.data, exact.bytes().data);
  EXPECT_EQ(static_cast<char*>(b.data) - static_cast<char*>(a.data), 64);
  Guarded short_by_one(sizing.bytes() - 1);
  ScratchAllocator too_small(short_by_one.bytes());
  EXPECT_THROW((void)cut(too_small), std::logic_error);
  ScratchAllocator absent{TensorView{}};
  EXPECT_THROW((void)cut(absent), std::logic_error);
}

}  // namespace
}  // namespace tessera::test
