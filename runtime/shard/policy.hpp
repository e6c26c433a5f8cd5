#pragma once
// ShardPolicy: what a sharding strategy is, as data. Read by the layout and the schedule builder, by nobody else.

#include <string>

#include "runtime/base/dtype.hpp"
#include "runtime/comm/mesh.hpp"

namespace tessera::shard {

/// When gradients meet: after every micro-batch, or once after the last (FSDP's no_sync until then).
enum class Reduce : unsigned char { each, last };

/// Whether the experts of a layer travel by themselves, or with the layer.
enum class ExpertUnits : unsigned char { own, block };

struct ShardPolicy {
  bool shard_grads = true;            // full gradients live only from backward to reduce
  bool shard_params = true;           // gathered parameters live only around their use
  bool reshard_after_forward = true;  // with shard_params: release between forward and backward
  Reduce reduce = Reduce::each;
  int forward_prefetch = 1;   // gathers in flight ahead of their forward
  int backward_prefetch = 1;  // and of their backward
  bool recompute = false;     // forward of a block again before its backward (--gradient_checkpointing full)
  ExpertUnits experts = ExpertUnits::own;
  bool reproducible = false;        // sum micro-batches by the binary counter over m = a·W + r
  DType param_dtype = DType::f32;   // of gathered parameters, and of what is computed with them; masters are fp32
  DType reduce_dtype = DType::f32;  // of gradients until they are reduced (fp32 or param_dtype); their sums are fp32
  friend bool operator==(const ShardPolicy&, const ShardPolicy&) = default;
};

/// A strategy as users name it: the mesh it makes of a world, and its policy.
struct Strategy {
  std::string name;  // "ZeRO-3", "HYBRID_SHARD", …: the canonical word
  Mesh mesh{1, 1};
  ShardPolicy policy;
};

/// The table of strategies (docs/strategies.md):
///   word: "0".."3", "zero0".."zero3", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2",
///   any case. group: ranks of a shard group for the HYBRID words, and for a hybrid ZeRO-1/2/3 when 0 < group < world;
///   0: the default (the node for HYBRID words, the world for the others).
/// Throws Error (usage): unknown word; group does not divide the world, naming the divisors that would.
[[nodiscard]] Strategy make_strategy(const std::string& word, int world, int group, int ranks_per_node);

/// Every strategy that a plan sets side by side for this world.
[[nodiscard]] std::vector<Strategy> all_strategies(int world, int ranks_per_node);

}  // namespace tessera::shard
