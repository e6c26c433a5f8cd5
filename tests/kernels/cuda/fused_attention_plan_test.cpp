// SPDX-License-Identifier: Apache-2.0
// Which attention calls a fused cuDNN kernel takes, and in how many chunks.
#include "kernels/cuda/fused_attention_plan.hpp"

#include <gtest/gtest.h>

namespace tessera::kernels::cuda {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

TEST(AttentionSplit, ScratchIsThatOfSpecifiedShapes) {
  EXPECT_EQ(16 * fused_sequence_bytes({16, 1024, 12, 2, 128}, 2), 480 * mib);  // 2 bytes a score; dK, dV of every head
  EXPECT_EQ(fused_sequence_bytes({16, 1024, 12, 2, 128}, 1), 15 * mib);        // half of the heads
  EXPECT_EQ(fused_sequence_bytes({1, 1024, 12, 12, 128}, 12), 24 * mib);
  EXPECT_EQ(fused_sequence_bytes({1, 37, 12, 12, 64}, 12), 2u * 12 * 64 * 128);  // tokens are rounded up
}

TEST(AttentionSplit, ChunksAreWithinTheBound) {
  const auto split = plan_fused_attention({16, 1024, 12, 2, 128}, DType::bf16);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->sequences, 8);
  EXPECT_EQ(split->kv_heads, 2);
  EXPECT_EQ(split->workspace, 240 * mib + fused_extra_bytes(8));
  EXPECT_EQ(plan_fused_attention({4, 4096, 28, 4, 128}, DType::f16)->sequences, 1);  // 952 MiB for one
  for (std::int64_t batch = 1, before = 0; batch < 20;
       ++batch) {  // a smaller batch never needs more: the plan is made for the largest
    const auto now = static_cast<std::int64_t>(plan_fused_attention({batch, 1024, 12, 2, 128}, DType::bf16)->workspace);
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST(AttentionSplit, LongSequencesGoByPartsOfTheirHeads) {
  const auto heads_of = [](std::int64_t tokens) {  // of Llama 3.1 8B
    const auto plan = plan_fused_attention({1, tokens, 32, 8, 128}, DType::bf16);
    return plan ? plan->kv_heads : 0;
  };
  EXPECT_EQ(heads_of(3968), 8);
  EXPECT_EQ(heads_of(4096), 4);  // 570 MiB of 1,140
  EXPECT_EQ(heads_of(8192), 1);  // 1,056 MiB for two
  EXPECT_EQ(heads_of(11264), 1);
  EXPECT_EQ(heads_of(32768), 0);  // 8.1 GiB for one
}

TEST(AttentionSplit, DocumentsNeedWhatTheLargestGroupNeeds) {
  const AttentionShape packed{.batch = 4, .tokens = 4096, .heads = 12, .kv_heads = 2, .head_dim = 128, .longest = 4096};
  ASSERT_TRUE(takes_documents(packed, DType::bf16));
  EXPECT_EQ(documents_shape(packed, 128).batch, 227);  // 1,179,648 bytes each
  EXPECT_EQ(documents_shape(packed, 1024).batch, 8);
  EXPECT_EQ(documents_shape(packed, 4096).batch, 1);
  const std::size_t backward = fused_documents_bytes(packed, DType::bf16, AttentionPass::backward);
  EXPECT_GT(backward, 408 * mib);  // one of 4,096 tokens
  EXPECT_LT(backward, 409 * mib);
  EXPECT_LT(fused_documents_bytes(packed, DType::bf16, AttentionPass::forward), mib);
  AttentionShape fewer = packed;  // a plan is made for the most tokens
  for (std::int64_t longest = 4096; longest > 0; longest -= 256) {
    fewer.longest = longest;
    EXPECT_LE(fused_documents_bytes(fewer, DType::bf16, AttentionPass::backward), backward) << longest;
  }
  AttentionShape long_rows = packed;
  long_rows.tokens = long_rows.longest = 65536;  // 8 GiB a head
  EXPECT_FALSE(takes_documents(long_rows, DType::bf16));
  EXPECT_FALSE(takes_documents({1 << 10, 4096, 12, 2, 128, 4096}, DType::bf16));  // offsets beyond int32
}

TEST(AttentionSplit, OtherCallsAreOurOwnKernels) {
  EXPECT_FALSE(plan_fused_attention({1, 64, 2, 2, 64}, DType::f32));
  for (const std::int64_t head_dim : {32, 72, 96, 256})
    EXPECT_FALSE(plan_fused_attention({1, 64, 2, 2, head_dim}, DType::bf16));
  EXPECT_FALSE(plan_fused_attention({1, 32768, 28, 4, 128}, DType::bf16));  // 56 GiB
  EXPECT_FALSE(plan_fused_attention({0, 64, 2, 2, 64}, DType::bf16));
}

TEST(AttentionSplit, ForwardCountsElementsIn32Bits) {
  EXPECT_EQ(fused_forward_rows({16, 4096, 12, 2, 128}), 16);
  EXPECT_EQ(fused_forward_rows({1000, 4096, 28, 4, 128}), 113);
  EXPECT_EQ(fused_forward_rows({1, 1 << 20, 28, 4, 128}), 1);
}

}  // namespace
}  // namespace tessera::kernels::cuda
