#pragma once
// RunPlan: layout, schedules, arena and costs of a run, from the same code that runs it; pure, and the same on every rank but for
// what `rank` changes. Nothing large is allocated.

#include <string>
#include <vector>

#include "models/module.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/comm/topology.hpp"
#include "runtime/plan/batch.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::plan {

using tessera::ArenaSlot, tessera::Category, tessera::Placement, tessera::name_of, tessera::num_categories;

/// What a run is, as far as bytes and order are concerned.
struct RunSpec {
  const models::Model* model = nullptr;
  shard::Strategy strategy;
  Topology topology;
  BatchPlan batch;
  std::int64_t tokens = 0;           // T
  std::int64_t eval_batch = 0;       // rows of an evaluation micro-batch; 0: as training
  int rank = 0;
};

struct Costs {
  std::size_t memory[num_categories] = {};   // bytes of this rank, by category
  std::size_t total = 0;
  TrafficCount shard_axis, replicate_axis;   // bytes this rank sends per training step, by axis
  double flops_per_step = 0;                 // of the global batch, model FLOPs (6·N_matmul + 12·L·H·T per token)
  double recompute_flops_per_step = 0;       // on top, when activations are recomputed
};

struct RunPlan {
  RunSpec spec;
  std::vector<shard::UnitSpec> units;
  shard::ShardLayout layout;
  shard::Schedule train, eval, logits;  // verified
  std::vector<ArenaSlot> slots;
  Costs costs;
};

/// Builds and verifies. Throws Error (usage): T longer than the model's positions, a world that is no power of two with reproducible.
[[nodiscard]] RunPlan make_plan(const RunSpec& spec);

/// Largest micro-batch (rows) whose plan fits in `device_memory` bytes per rank; 0 if none does. G follows B (A stays).
[[nodiscard]] std::int64_t largest_micro_batch(const RunSpec& spec, std::size_t device_memory);

}  // namespace tessera::plan
