// SPDX-License-Identifier: Apache-2.0
// The plan of a bf16 run: what takes half, what does not, and what is refused.

#include <gtest/gtest.h>

#include "runtime/base/error.hpp"
#include "runtime/plan/plan.hpp"

namespace tessera::test {
namespace {

constexpr const char* config =
    R"({"model_type": "gpt2", "n_layer": 5, "n_embd": 24, "n_head": 3, "vocab_size": 37, "n_positions": 16, "n_ctx": 16,
  "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";

struct Case {
  const char* strategy = "3";
  DType compute = DType::f32, reduce = DType::f32;
  Topology topology{Transport::mpi, 1};
  std::int64_t accumulation = 1;
};

plan::RunPlan plan_of(const Case& c) {
  static const models::Model fp32 = models::make(config, "test"), half = models::make(config, "test", DType::bf16);
  plan::RunSpec spec;
  spec.model = c.compute == DType::f32 ? &fp32 : &half;
  spec.strategy = shard::make_strategy(c.strategy, 4, 0, 2);
  spec.strategy.policy.param_dtype = c.compute;
  spec.strategy.policy.reduce_dtype = c.reduce;
  spec.topology = c.topology;
  spec.batch = {.global_batch = 4 * c.accumulation,
                .micro_batch = 1,
                .data_ranks = 4,
                .accumulation = static_cast<int>(c.accumulation)};
  spec.tokens = 16;
  spec.states = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  return plan::make_plan(spec);
}

std::size_t elements(const plan::RunPlan& plan) {
  std::size_t padded = 0;
  for (int u = 0; u < plan.layout.num_units(); ++u) padded += static_cast<std::size_t>(plan.layout.padded_numel(u));
  return padded;
}

std::size_t bytes(const plan::RunPlan& plan, Category category) {
  std::size_t sum = 0;
  for (const ArenaSlot& slot : plan.slots) sum += slot.category == category ? slot.bytes : 0;
  return sum;
}

/// Bytes of slots whose names begin with `prefix`.
std::size_t bytes_of_slots(const plan::RunPlan& plan, const std::string& prefix) {
  std::size_t sum = 0;
  for (const ArenaSlot& slot : plan.slots) sum += slot.name.starts_with(prefix) ? slot.bytes : 0;
  return sum;
}

TEST(PlanPrecision, MastersAreFp32GatheredParametersAreBf16) {
  for (const char* strategy : {"0", "1", "2", "3"}) {
    const plan::RunPlan plan = plan_of({.strategy = strategy, .compute = DType::bf16});
    const std::size_t p = elements(plan), shards = strategy[0] == '0' ? 1 : 4;
    EXPECT_EQ(p % (4 * 256), 0u);
    EXPECT_EQ(bytes(plan, Category::optimizer), 8 * p / shards) << strategy;
    const std::size_t gathered = strategy[0] == '3' ? 0 : 2 * p;  // ZeRO-3: in shared slots, which are buffers
    EXPECT_EQ(bytes(plan, Category::params), 4 * p / shards + gathered) << strategy;
    EXPECT_EQ(bytes_of_slots(plan, "master."), 4 * p / shards) << strategy;
  }
}

TEST(PlanPrecision, SharedWindowHoldsLowPrecisionCopies) {
  const plan::RunPlan plan = plan_of({.strategy = "3", .compute = DType::bf16, .topology = {Transport::node, 4}});
  const std::size_t p = elements(plan);
  EXPECT_EQ(bytes(plan, Category::params), 4 * p / 4 + 2 * p / 4);
  for (const ArenaSlot& slot : plan.slots) {
    EXPECT_EQ(slot.placement == Placement::node, slot.name.starts_with("param.")) << slot.name;
  }
}

TEST(PlanPrecision, GathersSendHalfAndReductionsWhatTheirTypeSays) {
  for (const std::int64_t accumulation : {1, 2}) {
    const plan::RunPlan plan = plan_of({.strategy = "2", .compute = DType::bf16, .accumulation = accumulation});
    const plan::RunPlan reduce_16bit =
        plan_of({.strategy = "2", .compute = DType::bf16, .reduce = DType::bf16, .accumulation = accumulation});
    const std::uint64_t p = elements(plan), a = static_cast<std::uint64_t>(accumulation);
    const std::uint64_t norm =
        plan.costs.shard_axis.within_node + plan.costs.shard_axis.across_nodes - (2 * p + a * 4 * p) / 4 * 3;
    const auto sent = reduce_16bit.costs.shard_axis.within_node + reduce_16bit.costs.shard_axis.across_nodes;
    EXPECT_EQ(sent, (2 * p + a * 2 * p) / 4 * 3 + norm);
    EXPECT_LT(norm, 20000u);  // a few hundred counters to three peers
    EXPECT_EQ(bytes_of_slots(reduce_16bit, "grad.") * 2, bytes_of_slots(plan, "grad."));
  }
}

TEST(PlanPrecision, ReplicasSumWhatTheShardAxisLeftInFp32) {
  const Case base{.strategy = "HYBRID_SHARD", .compute = DType::bf16};
  Case reduce_16bit = base;
  reduce_16bit.reduce = DType::bf16;
  EXPECT_EQ(plan_of(base).costs.replicate_axis, plan_of(reduce_16bit).costs.replicate_axis);
  // Without a shard axis the bf16 gradients are all-reduced: half of the reduce-scatter, and the same all-gather of
  // sums.
  const Case zero0{.strategy = "0", .compute = DType::bf16};
  Case zero0_16bit = zero0;
  zero0_16bit.reduce = DType::bf16;
  const plan::RunPlan fp32 = plan_of(zero0), half = plan_of(zero0_16bit);
  EXPECT_EQ(fp32.costs.replicate_axis.across_nodes - half.costs.replicate_axis.across_nodes,
            2 * elements(fp32) / 4 * 3);
  EXPECT_EQ(bytes_of_slots(half, "reduced."), 4 * elements(half));  // every unit has an fp32 accumulator
}

TEST(PlanPrecision, ParameterOffsetsDoNotChange) {
  const plan::RunPlan fp32 = plan_of({}), half = plan_of({.compute = DType::bf16});
  ASSERT_EQ(fp32.layout.num_units(), half.layout.num_units());
  for (int u = 0; u < fp32.layout.num_units(); ++u) EXPECT_EQ(fp32.layout.all_segments(u), half.layout.all_segments(u));
}

TEST(PlanPrecision, AReduceDtypeOtherThanTheComputeDtypeIsRefused) {
  try {
    (void)plan_of({.compute = DType::bf16, .reduce = DType::f16});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(error.line().find("reduce_dtype fp16 with parameters of bf16"), std::string::npos) << error.line();
  }
}

}  // namespace
}  // namespace tessera::test
