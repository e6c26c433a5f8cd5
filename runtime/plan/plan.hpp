// SPDX-License-Identifier: Apache-2.0
#pragma once
// RunPlan: layout, schedules, arena slots and costs of a run. The run itself and `tessera plan` use the same plan.
// Pure; allocates nothing large.

#include <string>
#include <vector>

#include "models/module.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/device.hpp"
#include "runtime/comm/topology.hpp"
#include "runtime/plan/batch.hpp"
#include "runtime/shard/groups.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::plan {

using tessera::ArenaSlot, tessera::Category, tessera::MemoryTable, tessera::Placement, tessera::name_of,
    tessera::num_categories;

/// What a run is for. Only training has gradients and optimizer states.
///   evaluate: forward to the loss, micro-batches of B samples of T tokens.
///   generate: prefill of prompts of up to T tokens, then decode passes of one token per row, with a key-value cache of
///             cache_tokens per row.
enum class Purpose : unsigned char { train, evaluate, generate };

/// The axes along which ranks have the same micro-batches, and different tokens of them.
inline constexpr AxisSet row_axes = Axis::context | Axis::tensor;

/// What an asynchronous save copies: nothing (there is none), the parameters, or also the optimizer states.
enum class Snapshot : unsigned char { none, model, all };

/// Everything that the memory and the schedules of a run depend on.
struct RunSpec {
  Purpose purpose = Purpose::train;
  const models::Model* model = nullptr;
  shard::Strategy strategy;
  Topology topology;
  BatchPlan batch;
  std::int64_t tokens = 0;        // T; generate: of the longest prompt
  std::int64_t row_stride = 0;    // how far rows are apart in the numbering of tokens that dropout uses; 0: T
  std::int64_t cache_tokens = 0;  // generate: of the longest row, prompt and new tokens
  std::int64_t eval_batch = 0;    // rows of an evaluation micro-batch; 0: as training
  /// Sequences of a sample: 2 for pairs, chosen and rejected one after the other. Batches are counted in samples.
  int sequences = 1;
  bool packed = false;  // rows hold several documents, which do not attend to one another
  /// With `packed`: the samples of a micro-batch are one row, end to end, of at most so many tokens in training and in
  /// evaluation; T at least. 0: each sample, or each of its sequences, is a row of T, or less.
  std::int64_t flat_tokens = 0, flat_eval_tokens = 0;
  bool loss_weights = false;      // targets have weights (models::Batch)
  bool reference_sums = false;    // the log-probabilities of a reference model are known beforehand
  bool nll_weights = false;       // a loss of pairs has cross-entropy in it
  bool margins = false;           // pairs have margins (models::Batch::margins)
  bool labels = false;            // each sequence has a label (models::Batch::labels), and a KL
  bool needs_kl = false;          // an evaluation, and in training a step, begins with passes over its rows for the KL
  std::vector<StateSpec> states;  // of the optimizer, in training
  Snapshot snapshot = Snapshot::none;
  int rank = 0;
  Device device;
  std::string nvme_path;  // directory of states on disk, if a unit has any (shard::Tier::disk)

  /// How many ranks share each row: each has 1/C of its tokens, or a part of these.
  [[nodiscard]] int context_ranks() const { return strategy.mesh.size(Axis::context); }
  /// How many ranks have parts of the same matrices: each has 1/N of the tokens of a micro-batch, or of what ranks that
  /// share its rows have of them.
  [[nodiscard]] int tensor_ranks() const { return strategy.mesh.size(Axis::tensor); }
  /// How many ranks have the same micro-batches, and each a part of the tokens.
  [[nodiscard]] int row_ranks() const { return strategy.mesh.size(row_axes); }
  [[nodiscard]] models::RowSharing row_sharing() const { return {row_ranks(), tensor_ranks()}; }
  /// The largest micro-batch in training, and in evaluation, of a rank.
  [[nodiscard]] models::BatchShape train_shape() const {
    models::BatchShape shape = shape_of(batch.micro_batch, flat_tokens);
    shape.saves_outputs = saves_outputs();
    return shape;
  }
  [[nodiscard]] bool saves_outputs() const { return strategy.policy.recompute == shard::Recompute::keep_all; }
  [[nodiscard]] std::int64_t eval_rows() const { return eval_batch > 0 ? eval_batch : batch.micro_batch; }
  /// The most sequences of a micro-batch in training, and in evaluation; rows, unless samples are end to end.
  [[nodiscard]] std::int64_t train_sequences() const { return batch.micro_batch * sequences; }
  [[nodiscard]] std::int64_t eval_sequences() const { return eval_rows() * sequences; }
  /// Evaluation passes that a training step begins with.
  [[nodiscard]] std::int64_t kl_passes() const {
    const std::int64_t samples = eval_rows() * batch.data_ranks;
    return needs_kl && purpose == Purpose::train ? (batch.global_batch + samples - 1) / samples : 0;
  }
  /// Of a sample's prompt in training, the longest.
  [[nodiscard]] models::BatchShape prompt_shape() const {
    models::BatchShape shape{1, tokens, device};
    shape.whole = tensor_ranks() > 1;
    return shape;
  }
  /// In evaluation; of a pass of generation, in which every rank has all tokens.
  [[nodiscard]] models::BatchShape eval_shape() const {
    if (purpose != Purpose::generate) return shape_of(eval_rows(), flat_eval_tokens);
    models::BatchShape shape{eval_rows(), tokens, device};
    shape.whole = tensor_ranks() > 1;
    return shape;
  }

 private:
  [[nodiscard]] models::BatchShape shape_of(std::int64_t samples, std::int64_t flat) const {
    const std::int64_t rows = samples * sequences;
    const int ranks = row_ranks();
    const std::int64_t longest = context_ranks() > 1 ? tokens : 0;
    models::BatchShape shape = flat > 0 ? models::BatchShape{1, flat / ranks, device, tokens}
                                        : models::BatchShape{rows, tokens / ranks, device, longest};
    shape.packed = packed;
    shape.ends = flat > 0 ? rows : 0;
    return shape;
  }
};

/// Bytes that a rank moves in a step between memory tiers, where states are offloaded.
struct MovedBytes {
  std::uint64_t fetched = 0, stored = 0;  // to the device, and from it
  std::uint64_t updated = 0;              // read and written by updates on the host
};

struct Costs {
  std::size_t memory[num_categories] = {};  // bytes of this rank, by category (planned_memory)
  std::size_t total = 0;
  std::size_t in[num_memories] = {};  // the same, by memory
  // Bytes that this rank sends per training step (inference: per pass): by group, and added up over the groups along
  // which a unit is sharded, over the others, and over those of exchanges of activations.
  std::vector<TrafficCount> traffic;
  TrafficCount shard_axis, replicate_axis, exchange;
  MovedBytes moved;
  double flops_per_step = 0;  // of the global batch, model FLOPs (6·N_matmul + 12·L·H·T per token; inference: a third)
  double recompute_flops_per_step = 0;  // added by recompute, Module::repeated_flops, and what several ranks compute
};

struct RunPlan {
  RunSpec spec;
  std::vector<shard::UnitSpec> units;
  shard::ShardLayout layout;
  shard::Schedule train, eval, logits;  // verified; empty if the purpose does not need it
  shard::Schedule load;                 // gathers resident units that are not trainable, once, before the others
  shard::Groups groups;
  std::vector<ArenaSlot> slots;
  Costs costs;

  /// The schedule that the run repeats: a training step, an evaluation micro-batch, a generation pass.
  [[nodiscard]] const shard::Schedule& main() const {
    return spec.purpose == Purpose::train ? train : spec.purpose == Purpose::evaluate ? eval : logits;
  }
  /// True if a unit is sharded over groups.all[group].
  [[nodiscard]] bool shards_over(int group) const;
  /// What a checkpoint holds beside the parameters: the optimizer's states, and the residuals of int8 gradients.
  [[nodiscard]] std::vector<StateSpec> saved_states() const;
  /// All schedules that are not empty, main() first.
  [[nodiscard]] std::vector<const shard::Schedule*> schedules() const;
};

/// Builds and verifies. Throws Error (usage): T above the model's positions, a reproducible run whose world is no power
/// of two, and others.
[[nodiscard]] RunPlan make_plan(const RunSpec& spec);

/// Bytes of Category::params that a rank keeps for frozen parameters: their shards, and copies that stay gathered.
[[nodiscard]] std::size_t frozen_bytes(const RunPlan& plan);

/// Bytes of states, or activations, of a category that a rank keeps on the host beside a device (without one: in the
/// part of host memory where it computes).
[[nodiscard]] std::size_t offloaded_bytes(const RunPlan& plan, Category category, Memory memory);

/// "" if the measured memory equals the plan's, else where they differ: "params 8192 bytes planned, 12288 measured".
/// NCCL's buffers are an estimate: there only more than planned counts.
[[nodiscard]] std::string compare_memory(const RunPlan& plan, const MemoryTable& measured);

/// Bytes that must fit in the memory of the run's device (or of the host, without one).
[[nodiscard]] std::size_t memory_needed(const RunPlan& plan);

/// memory_needed of a spec's plan, whose schedules are not proved safe: for comparing sizes.
[[nodiscard]] std::size_t planned_memory(const RunSpec& spec);

}  // namespace tessera::plan
