#pragma once
// RunPlan: layout, schedules, arena and costs of a run, from the same code that runs it; pure, and the same on every
// rank but for what `rank` changes. Nothing large is allocated.

#include <string>
#include <vector>

#include "models/module.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/device.hpp"
#include "runtime/comm/topology.hpp"
#include "runtime/plan/batch.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::plan {

using tessera::ArenaSlot, tessera::Category, tessera::Placement, tessera::name_of, tessera::num_categories;

/// What a run is for. It decides which schedules and which state there are: gradients and
/// optimizer states are training's alone.
///   evaluate: forward to the loss, B samples of T a micro-batch.
///   generate: a first pass over prompts of up to T tokens, then one token of each row a pass, with
///   a cache of cache_tokens a row.
enum class Purpose : unsigned char { train, evaluate, generate };

/// What a run is, as far as bytes and order are concerned.
struct RunSpec {
  Purpose purpose = Purpose::train;
  const models::Model* model = nullptr;
  shard::Strategy strategy;
  Topology topology;
  BatchPlan batch;
  std::int64_t tokens = 0;        // T; generate: of the longest prompt
  std::int64_t cache_tokens = 0;  // generate: of the longest row that comes of it
  std::int64_t eval_batch = 0;    // rows of an evaluation micro-batch; 0: as training
  bool packed = false;            // rows of training and evaluation hold documents that do not see one another
  std::size_t index_bytes =
      0;  // packed: of what says which document is in which row, of all data of the run (io::PackedStream)
  int snapshot_vectors =
      0;  // of the state that a save in the background may copy: 0 none, 1 the model, 3 with its moments
  int rank = 0;
  Device device;  // where it computes: slots of all but staging lie there
};
inline constexpr const char* snapshot_name = "snapshot";
inline constexpr const char* index_name = "index";  // of packed samples

struct Costs {
  std::size_t memory[num_categories] = {};  // bytes of this rank, by category
  std::size_t total = 0;
  std::size_t in[num_memories] = {};        // of them, in each memory
  TrafficCount shard_axis, replicate_axis;  // bytes this rank sends per training step (inference: per pass), by axis
  double flops_per_step = 0;  // of the global batch, model FLOPs (6·N_matmul + 12·L·H·T per token; inference: a third)
  double recompute_flops_per_step = 0;  // on top, when activations are recomputed
};

struct RunPlan {
  RunSpec spec;
  std::vector<shard::UnitSpec> units;
  shard::ShardLayout layout;
  shard::Schedule train, eval, logits;  // verified; what the purpose has no use for is empty
  shard::Schedule load;                 // inference: gathers what stays resident, once
  std::vector<ArenaSlot> slots;
  Costs costs;

  /// The schedule that a run of this purpose repeats: a training step, an evaluation micro-batch, a pass of generation.
  [[nodiscard]] const shard::Schedule& main() const {
    return spec.purpose == Purpose::train ? train : spec.purpose == Purpose::evaluate ? eval : logits;
  }
  /// Every schedule that is not empty, main() first.
  [[nodiscard]] std::vector<const shard::Schedule*> schedules() const;
};

/// Builds and verifies. Throws Error (usage): T longer than the model's positions, a world that is no
/// power of two with reproducible.
[[nodiscard]] RunPlan make_plan(const RunSpec& spec);

/// Bytes that have to fit where the run computes: all on the host, what lies on the device there.
[[nodiscard]] std::size_t memory_needed(const RunPlan& plan);

/// Largest micro-batch (rows) whose plan fits in `device_memory` bytes per rank; 0 if none does. G follows B (A stays).
[[nodiscard]] std::int64_t largest_micro_batch(const RunSpec& spec, std::size_t device_memory);

}  // namespace tessera::plan
