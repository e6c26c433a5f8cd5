// SPDX-License-Identifier: Apache-2.0
// Which attention calls a fused cuDNN kernel takes, and in how many chunks.
#include "kernels/cuda/fused_attention_plan.hpp"

#include <gtest/gtest.h>

namespace tessera::kernels::cuda {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

TEST(AttentionSplit, ScratchIsThatOfSpecifiedShapes) {
  EXPECT_EQ(16 * fused_row_bytes({16, 1024, 12, 2, 128}), 480 * mib);  // 2 bytes a score, and dK, dV of every head
  EXPECT_EQ(fused_row_bytes({1, 1024, 12, 12, 128}), 24 * mib);
  EXPECT_EQ(fused_row_bytes({1, 37, 12, 12, 64}), 2u * 12 * 64 * 128);  // tokens are rounded up
}

TEST(AttentionSplit, ChunksAreWithinTheBound) {
  const auto split = plan_fused_attention({16, 1024, 12, 2, 128}, DType::bf16);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->rows, 8);
  EXPECT_EQ(split->workspace, 240 * mib + fused_extra_bytes);
  EXPECT_EQ(plan_fused_attention({4, 4096, 28, 4, 128}, DType::f16)->rows, 1);  // 952 MiB for one
  for (std::int64_t batch = 1, before = 0; batch < 20;
       ++batch) {  // a smaller batch never needs more: the plan is made for the largest
    const auto now = static_cast<std::int64_t>(plan_fused_attention({batch, 1024, 12, 2, 128}, DType::bf16)->workspace);
    EXPECT_GE(now, before);
    before = now;
  }
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
