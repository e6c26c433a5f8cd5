// SPDX-License-Identifier: Apache-2.0
#pragma once
// ShardPolicy: a sharding strategy as data. The layout and the schedule builder turn it into
// offsets and instructions; nothing at run time asks which strategy it is.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/comm/mesh.hpp"
#include "runtime/shard/compression.hpp"
#include "runtime/shard/placement.hpp"

namespace tessera::shard {

/// When gradients are reduced: after every micro-batch; over the shard axes after every one and over the replicate axes
/// once after the last (as with FSDP2's set_requires_all_reduce(False)); or once after the last (as with FSDP's
/// no_sync). docs/strategies.md has the order of the sums.
enum class Reduce : unsigned char { each, shard_each, last };

/// Whether the experts of a layer are a unit of their own, or in the layer's unit.
enum class ExpertUnits : unsigned char { own, block };

/// Which transformer blocks share a unit, as FSDP's auto-wrap policies say it. Embedding and head are units of their
/// own, except in Kind::model.
struct WrapPolicy {
  enum class Kind : unsigned char {
    blocks,  // blocks_per_unit consecutive blocks; a remainder is a smaller unit
    size,    // consecutive blocks, until they have min_num_params parameters
    model,   // the whole model is one unit
  };
  Kind kind = Kind::blocks;
  std::int64_t blocks_per_unit = 1, min_num_params = 100'000'000;
  friend bool operator==(const WrapPolicy&, const WrapPolicy&) = default;
};

/// Which activations a step computes again before backward (activation checkpointing): none, with more of them saved
/// (models::BatchShape::saves_outputs) or without; of each block those that models::SavedBytes does not keep; or all
/// but the input of each block.
enum class Recompute : unsigned char { keep_all, none, selective, full };
[[nodiscard]] const char* name_of(Recompute recompute);
/// Whether a recompute comes before the backward of a block.
[[nodiscard]] constexpr bool recomputes(Recompute recompute) {
  return recompute == Recompute::selective || recompute == Recompute::full;
}

/// The part of a policy that may differ between the units of a run.
struct UnitPolicy {
  bool shard_grads = true;            // unsharded gradients exist only from backward to reduce
  bool shard_params = true;           // gathered parameters exist only while a module uses them
  bool reshard_after_forward = true;  // with shard_params: release between forward and backward
  DType param_dtype = DType::f32;     // of gathered parameters and of activations; master weights are fp32
  DType reduce_dtype = DType::f32;    // of gradients until they are reduced (fp32 or param_dtype); their sums are fp32
  AxisSet shard_axes = Axis::shard;   // the ranks along these hold the shards of the unit …
  AxisSet replicate_axes = Axis::replicate;  // … and those along these the same shard; together all data axes
  /// Gradients and, of a trainable unit, params are offloaded only where the states of the optimizer are too. Params
  /// that are offloaded are gathered for each use.
  StatePlacement placement;
  friend bool operator==(const UnitPolicy&, const UnitPolicy&) = default;
};

/// The policy of a run; its UnitPolicy is that of every unit which has none of its own.
struct ShardPolicy : UnitPolicy {
  Reduce reduce = Reduce::each;
  int forward_prefetch = 1;   // how many forward passes ahead a gather is issued
  int backward_prefetch = 1;  // the same for backward passes
  Recompute recompute = Recompute::none;
  WrapPolicy wrap;
  ExpertUnits experts = ExpertUnits::own;
  int staging_slots = 2;  // of each kind of state that is offloaded: how many units of it are moved or used at a time
  /// host: what blocks read and save is stored there after their forward, and fetched before their backward.
  Tier activations = Tier::device;
  bool updates_before_norm = false;  // without clipping: updates on the host run while backward goes on
  bool reproducible = false;         // sum micro-batches by the binary counter over m = a·W + r
  Compression compression;
  friend bool operator==(const ShardPolicy&, const ShardPolicy&) = default;
};

/// The strategy of the units whose name a glob matches: {"layers.*", "FULL_SHARD"}. The name of a module ("h.3") is
/// also that of its frozen unit ("h.3.frozen").
struct UnitStrategy {
  std::string units, strategy;
  [[nodiscard]] bool matches(const std::string& unit) const;
};

/// A strategy as users name it: a mesh of the world's ranks, and a policy.
struct Strategy {
  std::string name;  // canonical: "ZeRO-3", "HYBRID_SHARD", …; with unit_strategies "ZeRO-3, mixed"
  Mesh mesh{1, 1};
  ShardPolicy policy;
  std::vector<UnitStrategy> unit_strategies;  // the last that matches a unit decides

  /// The policy of a unit: that of the run, with what is sharded, and over which axes, from unit_strategies.
  [[nodiscard]] UnitPolicy unit_policy(const std::string& unit) const;
};

/// The table of strategies (docs/strategies.md):
///   word: "0".."3", "zero0".."zero3", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD" or
///         "HYBRID_SHARD_ZERO2", in any case.
///   group: ranks of a shard group, for HYBRID strategies and, if 0 < group < world, for a hybrid ZeRO-1, 2 or 3.
///          0: the default, which is the node for HYBRID strategies and the world for the others.
///   unit_strategies: words as above. NO_SHARD replicates over all data axes of the mesh; 1, 2 and 3 shard over all,
///          whatever `group` is; HYBRID strategies shard over the inner one. Where one of them is HYBRID and `word` is
///          not, the mesh is that of HYBRID.
/// Throws Error (usage): unknown word; a group that does not divide the world (the message names those that do).
[[nodiscard]] Strategy make_strategy(const std::string& word, int world, int group, int ranks_per_node,
                                     std::vector<UnitStrategy> unit_strategies = {});

/// Every strategy for this world, which `tessera plan` compares.
[[nodiscard]] std::vector<Strategy> all_strategies(int world, int ranks_per_node);

}  // namespace tessera::shard
