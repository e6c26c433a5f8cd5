// SPDX-License-Identifier: Apache-2.0
#pragma once
// RunContext: what training and inference have in common: plan, communicators, arena and shard manager of a run, made
// in this order. Trainer and Inference derive from it.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/model/model_io.hpp"
#include "io/scratch/scratch_store.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/exec/batches.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::exec {

/// What tests change in a run.
struct RunTestHooks {
  std::string resized_slot;  // this slot is allocated with `resize` bytes more (or fewer) than planned
  std::ptrdiff_t resize = 0;
};

class RunContext {
 public:
  /// Collective. Takes topology and rank from the world. `agreed`: what must be equal on all ranks, beside the plan.
  RunContext(World& world, const plan::RunSpec& spec, const std::string& agreed, const RunTestHooks& test_hooks = {});

  World& world;
  plan::RunPlan plan;
  std::vector<std::unique_ptr<Communicator>> communicators;  // of RunPlan::groups
  const io::ScratchStore* scratch = nullptr;                 // of the arena's states on disk; null: none are there
  std::unique_ptr<Arena> arena;
  shard::ShardManager manager;

  /// This rank along the data axes, r: it has micro-batches m = a·W + r.
  [[nodiscard]] int data_rank() const;
  /// Its place among the ranks that share rows.
  [[nodiscard]] SampleBatches::Context context() const;
  /// Initializes the parameters, as a function of seed, parameter name and element index alone.
  enum class Initialized : unsigned char { all, adapters };  // adapters: and the score of a reward model
  void initialize(std::uint64_t seed, Initialized which = Initialized::all);
  /// Of which units: the model's own, or those that only its reference model reads.
  enum class Units : unsigned char { own, reference };
  /// This rank's master shards, one per unit.
  [[nodiscard]] std::vector<io::ShardView> shards(Units which = Units::own);
  /// Of a group; nothing if the run has no such group.
  [[nodiscard]] TrafficCount traffic(AxisSet axes) const;
  /// The same of exchanges of activations.
  [[nodiscard]] TrafficCount exchange_traffic(AxisSet axes) const;
  /// Memory of the arena and of the communicators, as the system reports it (Arena::measure).
  [[nodiscard]] MemoryTable measure_memory() const;

  /// Does `work`. An exception of this rank alone ends the run on all ranks: the others would wait in a collective.
  template <class Work>
  void abort_on_error(std::int64_t step, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.code() == ExitCode::diverged || error.code() == ExitCode::communication) throw;  // every rank has it
      world.abort(error);
    } catch (const std::exception& error) {
      world.abort(Error(ExitCode::internal, error.what(), strfmt("step %ld", step)));
    }
  }

 private:
  [[nodiscard]] plan::RunPlan make_plan(plan::RunSpec spec, const std::string& agreed, const RunTestHooks& test_hooks);
  [[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_communicators();
  [[nodiscard]] std::unique_ptr<Arena> make_arena();
  [[nodiscard]] std::unique_ptr<DiskMemory> on_disk(const std::vector<ArenaSlot>& slots);
  [[nodiscard]] std::byte* share(const ArenaSlot& slot, std::size_t bytes);
};

}  // namespace tessera::exec
