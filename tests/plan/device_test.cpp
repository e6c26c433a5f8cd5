// SPDX-License-Identifier: Apache-2.0
// The plan of a run on a device: device slots, pinned slots, and what only a device has.

#include <gtest/gtest.h>

#include "kernels/attention.hpp"
#include "kernels/gemm.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/step.hpp"
#include "runtime/base/error.hpp"
#include "runtime/plan/activations.hpp"
#include "runtime/plan/limits.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::test {
namespace {

constexpr const char* config =
    R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 24, "n_head": 3, "vocab_size": 37, "n_positions": 16, "n_ctx": 16,
  "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
constexpr const char* experts =
    R"({"model_type": "mixtral", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 16, "num_hidden_layers": 1,
  "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16, "num_local_experts": 4, "num_experts_per_tok": 2})";

plan::RunSpec spec_of(const models::Model& model, const Topology& topology) {
  plan::RunSpec spec;
  spec.model = &model;
  spec.strategy = shard::make_strategy("3", 4, 0, 2);
  spec.topology = topology;
  spec.batch = {.global_batch = 24, .micro_batch = 2, .data_ranks = 4, .accumulation = 3};
  spec.tokens = 16;
  spec.states = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  spec.device = {Device::Kind::cuda, 0};
  return spec;
}

constexpr Topology nccl{Transport::nccl, 4}, staged{.transport = Transport::mpi, .ranks_per_node = 4, .staged = true};

const models::Model& model() {
  static const models::Model made = models::make(config, "test");
  return made;
}

const ArenaSlot& slot(const plan::RunPlan& plan, const std::string& name) {
  for (const ArenaSlot& s : plan.slots)
    if (s.name == name) return s;
  throw std::runtime_error("no slot " + name);
}

std::size_t bytes_of(const plan::RunPlan& plan, Category category) {
  std::size_t sum = 0;
  for (const ArenaSlot& s : plan.slots) sum += s.category == category ? s.bytes : 0;
  return sum;
}

/// Whether the tensors lie one after the other in their unit's flat buffer.
bool adjacent(const models::Model& of, const plan::RunPlan& plan, const std::vector<std::string>& names) {
  const auto index = [&](const std::string& name) {
    for (std::size_t p = 0; p < of.params.size(); ++p)
      if (of.params[p].name == name) return static_cast<int>(p);
    throw std::runtime_error("no parameter " + name);
  };
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    const int first = index(names[i]), next = index(names[i + 1]);
    if (plan.layout.unit_of(first) != plan.layout.unit_of(next) ||
        plan.layout.offset_of(first) + of.params[static_cast<std::size_t>(first)].numel() !=
            plan.layout.offset_of(next))
      return false;
  }
  return true;
}

TEST(PlanDevice, OneGemmForQueriesKeysAndValuesAndOneForGateAndUp) {
  for (const char* family : {"qwen2", "qwen3", "llama"}) {
    const models::Model dense =
        models::make(strfmt(R"({"model_type": "%s", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 32,
  "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64})",
                            family),
                     "test");
    const plan::RunPlan plan = plan::make_plan(spec_of(dense, nccl));
    const std::string layer = "model.layers.0.";
    const auto names = [&](const std::string& module, std::vector<std::string> parts, const std::string& kind) {
      for (std::string& part : parts) part = layer + module + part + kind;
      return parts;
    };
    EXPECT_TRUE(adjacent(dense, plan, names("self_attn.", {"q_proj", "k_proj", "v_proj"}, ".weight"))) << family;
    EXPECT_TRUE(adjacent(dense, plan, names("mlp.", {"gate_proj", "up_proj"}, ".weight"))) << family;
    if (std::string(family) == "qwen2") {
      EXPECT_TRUE(adjacent(dense, plan, names("self_attn.", {"q_proj", "k_proj", "v_proj"}, ".bias")));
    }
  }
}

std::string refusal_of(const plan::RunSpec& spec) {
  try {
    (void)plan::make_plan(spec);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.line();
  }
  return "accepted";
}

TEST(PlanDevice, ShapesThatItsKernelsDoNotTakeAreRefused) {
  constexpr std::int64_t head = kernels::max_device_head_dim, norm = kernels::max_device_norm_channels;
  const auto llama = [](std::int64_t head_dim, std::int64_t hidden) {
    return models::make(strfmt(R"({"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 16,
  "hidden_size": %ld, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": %ld, "intermediate_size": 16})",
                               hidden, head_dim),
                        "test");
  };
  const auto refusal = [](const models::Model& of, plan::Purpose purpose, Device device) {
    plan::RunSpec spec = spec_of(of, staged);
    spec.device = device;
    spec.topology.staged = device != host_device;
    spec.purpose = purpose;
    if (purpose != plan::Purpose::train) spec.states.clear();
    if (purpose == plan::Purpose::generate) spec.cache_tokens = spec.tokens;
    return refusal_of(spec);
  };
  const Device device{Device::Kind::cuda, 0};
  using plan::Purpose;
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate, Purpose::generate}) {
    EXPECT_EQ(refusal(llama(head, norm), purpose, device), "accepted");
    EXPECT_EQ(refusal(llama(head + 2, 16), purpose, device),
              "attention with heads of 258 is not supported on a GPU, whose kernels take at most 256 [--backend]. "
              "Use --backend cpu");
    EXPECT_EQ(refusal(llama(head + 2, norm + 1), purpose, host_device), "accepted");
    // RMSNorm's backward has a limit, its forward has none.
    EXPECT_EQ(refusal(llama(head, norm + 1), purpose, device),
              purpose == Purpose::train ? "training with RMSNorm of 16385 channels is not supported on a GPU, whose "
                                          "kernel takes at most 16384 [--backend]. Use --backend cpu"
                                        : "accepted");
  }
  const models::Model layer_norm = models::make(
      strfmt(
          R"({"model_type": "gpt2", "n_layer": 1, "n_embd": %ld, "n_head": 128, "vocab_size": 37, "n_positions": 16})",
          norm + 128),
      "test");
  EXPECT_EQ(refusal(layer_norm, Purpose::train, device), "accepted");
}

TEST(PlanDevice, WeightsOfALayersExpertsAreFrozenTogether) {
  models::Model moe = models::make(experts, "test");
  const auto refusal = [&] { return refusal_of(spec_of(moe, nccl)); };
  EXPECT_EQ(refusal(), "accepted");
  const auto freeze = [&](const std::string& part) {
    for (ParamSpec& param : moe.params)
      if (param.name.find(part) != std::string::npos) param.trainable = false;
  };
  freeze("experts.2.w1");
  EXPECT_NE(refusal().find("model.layers.0.block_sparse_moe.experts.*.w1.weight"), std::string::npos) << refusal();
  freeze("w1");
  EXPECT_EQ(refusal().find("experts.*"), std::string::npos) << refusal();
}

TEST(PlanDevice, HostAccessedSlotsArePinnedOthersAreOnTheDevice) {
  for (const Topology& topology : {nccl, staged}) {
    const plan::RunPlan plan = plan::make_plan(spec_of(model(), topology));
    std::size_t in[num_memories] = {};
    for (const ArenaSlot& s : plan.slots) {
      const bool hosts = s.name.starts_with("pinned.") || s.name.starts_with("staging.");
      EXPECT_EQ(s.memory, hosts ? Memory::pinned : Memory::device) << s.name;
      in[static_cast<int>(s.memory)] += s.bytes;
    }
    EXPECT_GE(plan.costs.in[static_cast<int>(Memory::device)], in[static_cast<int>(Memory::device)]);
    EXPECT_EQ(plan.costs.in[static_cast<int>(Memory::device)] % Arena::device_block_bytes, 0u);
    EXPECT_EQ(plan.costs.in[static_cast<int>(Memory::host)], 0u);
    EXPECT_EQ(plan::memory_needed(plan), plan.costs.in[static_cast<int>(Memory::device)]);
    EXPECT_EQ(plan.costs.total, plan.costs.in[0] + plan.costs.in[1] + plan.costs.in[2]);
  }
}

TEST(PlanDevice, AGroupThatOnlyNormUsesHasStaging) {
  plan::RunSpec spec = spec_of(model(), staged);
  spec.strategy = shard::make_strategy("HYBRID_SHARD", 4, 2, 2, {{"*", "NO_SHARD"}});
  spec.purpose = plan::Purpose::evaluate;
  spec.states.clear();
  const plan::RunPlan plan = plan::make_plan(spec);
  EXPECT_EQ(plan.groups.norm.size(), 2u);
  for (const AxisSet axes : plan.groups.all)
    EXPECT_EQ(slot(plan, "staging." + axes.str()).bytes,
              staging_bytes(staged, spec.strategy.mesh, axes, spec.rank, Arena::alignment));
}

TEST(PlanDevice, EachMicroBatchHasItsTokenBuffers) {
  const plan::RunPlan plan = plan::make_plan(spec_of(model(), nccl));
  for (const char* name : {"ids", "targets", "pinned.ids", "pinned.targets"})
    EXPECT_EQ(slot(plan, name).bytes, 3u * 2 * 16 * 4) << name;
  EXPECT_EQ(slot(plan, "step").bytes, sizeof(kernels::StepScalars));
  EXPECT_EQ(slot(plan, "gemm_workspace").bytes, kernels::gemm_device_workspace);
}

TEST(PlanDevice, LossWeightsHaveBuffersOnlyIfTheRunHasThem) {
  const auto num_weights = [](const plan::RunSpec& spec) {
    const plan::RunPlan plan = plan::make_plan(spec);
    return std::ranges::count_if(plan.slots,
                                 [](const ArenaSlot& s) { return s.name.find("loss_weights") != std::string::npos; });
  };
  plan::RunSpec spec = spec_of(model(), nccl);
  EXPECT_EQ(num_weights(spec), 0);
  spec.loss_weights = true;
  EXPECT_EQ(num_weights(spec), 2);
  for (const char* name : {"loss_weights", "pinned.loss_weights"})
    EXPECT_EQ(slot(plan::make_plan(spec), name).bytes, 3u * 2 * 16 * 4) << name;
  spec.device = host_device;
  EXPECT_EQ(num_weights(spec), 1);
  EXPECT_EQ(slot(plan::make_plan(spec), "loss_weights").bytes, 2u * 16 * 4);
}

TEST(PlanDevice, CudnnsScratchIsPlanned) {
  const models::Model small = models::make(
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 128, "n_head": 2, "vocab_size": 64, "n_positions": 1024, "n_ctx": 1024,
  "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})",
      "test", DType::bf16);
  plan::RunSpec spec = spec_of(small, nccl);
  spec.tokens = 1024;
  spec.strategy.policy.param_dtype = DType::bf16;
  const std::size_t own = slot(plan::make_plan(spec), "workspace").bytes;
  kernels::set_device_attention(kernels::DeviceAttention::cudnn);
  const std::size_t with = slot(plan::make_plan(spec), "workspace").bytes;
  kernels::set_device_attention(kernels::DeviceAttention::own);
  const std::size_t scratch = std::size_t{2} * 2 * 2 * 1024 * 1024;  // dP: two bytes, two sequences, two heads
  EXPECT_LT(own, scratch);
  EXPECT_GE(with, scratch);
}

TEST(PlanDevice, GradientsAreInHostMemoryWhereTheOptimizerIsOnDisk) {
  plan::RunSpec spec = spec_of(model(), nccl);
  using shard::Tier;
  spec.strategy.policy.placement = {Tier::device, Tier::disk, Tier::disk};
  std::size_t gradients = 0, states = 0;
  for (const ArenaSlot& s : plan::make_plan(spec).slots) {
    if (s.category == Category::grads) { EXPECT_NE(s.memory, Memory::disk) << s.name; }
    gradients += s.category == Category::grads && s.memory == Memory::pinned ? 1 : 0;
    states += s.category == Category::optimizer && s.memory == Memory::disk ? 1 : 0;
  }
  EXPECT_GT(gradients, 0u);
  EXPECT_GT(states, 0u);
}

TEST(PlanDevice, StatesAreThoseOfTheHost) {
  plan::RunSpec host = spec_of(model(), {Transport::mpi, 4});
  host.device = host_device;
  const plan::RunPlan a = plan::make_plan(host), b = plan::make_plan(spec_of(model(), nccl));
  for (const Category c : {Category::params, Category::grads, Category::optimizer})
    EXPECT_EQ(bytes_of(a, c), bytes_of(b, c)) << name_of(c);
}

TEST(PlanDevice, LargestBatchIsByDeviceMemory) {
  const plan::RunSpec spec = spec_of(model(), staged);
  const std::size_t needed = plan::memory_needed(plan::make_plan(spec));
  EXPECT_LT(needed, plan::make_plan(spec).costs.total);
  EXPECT_GE(plan::largest_micro_batch(spec, needed), 2);
  EXPECT_LT(plan::largest_micro_batch(spec, needed - 1), 2);
}

TEST(PlanDevice, ASnapshotIsPinned) {
  plan::RunSpec async = spec_of(model(), nccl);
  const std::size_t without = plan::memory_needed(plan::make_plan(async));
  async.snapshot = plan::Snapshot::all;
  const plan::RunPlan plan = plan::make_plan(async);
  plan::RunSpec host = async;
  host.topology = {Transport::mpi, 4};
  host.device = host_device;
  EXPECT_EQ(slot(plan, "snapshot").memory, Memory::pinned);
  EXPECT_EQ(slot(plan, "snapshot").bytes, slot(plan::make_plan(host), "snapshot").bytes);
  EXPECT_EQ(plan::memory_needed(plan), without);
}

TEST(PlanDevice, NcclSendsBf16GradientsAsBf16) {
  const models::Model half = models::make(config, "test", DType::bf16);
  plan::RunSpec spec = spec_of(half, nccl);
  spec.strategy.policy.param_dtype = DType::bf16;
  const plan::RunPlan full = plan::make_plan(spec);
  spec.strategy.policy.reduce_dtype = DType::bf16;
  const plan::RunPlan reduced = plan::make_plan(spec);
  std::uint64_t padded = 0;
  for (int u = 0; u < full.layout.num_units(); ++u) padded += static_cast<std::uint64_t>(full.layout.padded_numel(u));
  EXPECT_EQ(full.costs.shard_axis.within_node - reduced.costs.shard_axis.within_node,
            3 * padded * 3 / 4 * 2);  // micro-batches, of a ring of four
}

TEST(PlanDevice, RouterStatisticsAreOnTheDeviceLossesAreReducedWithTheNorm) {
  const models::Model mixture = models::make(experts, "test");
  const plan::RunPlan plan = plan::make_plan(spec_of(mixture, nccl));
  EXPECT_EQ(slot(plan, "router").memory, Memory::device);
  EXPECT_EQ(slot(plan, "router").bytes, std::size_t{1} * 2 * 4 * sizeof(double));
  const std::size_t counters = shard::ShardManager::num_norm_counters(plan.layout.num_units(), 2);
  EXPECT_EQ(slot(plan, "norm").bytes, (counters + 2 * ExactSum::num_counters) * sizeof(std::int64_t));
}

}  // namespace
}  // namespace tessera::test
