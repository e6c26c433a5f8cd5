#pragma once
// RunContext: what a run of any purpose is put together from, in the order it is built: plan, agreement with the peers,
// communicators, arena, sharded state. What happens in the run is its owner's business (Trainer, Inference).

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/model/model_io.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/comm/delayed.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::train {

/// What tests change about a run's parts.
struct RunTestHooks {
  Delay delay;                 // a slow transport
  std::string shortened_slot;  // this slot of the arena is 64 bytes short: its canary must notice
};

class RunContext {
 public:
  /// Collective. `spec`'s topology and rank are filled from the world; `agreed`: what else the ranks must have alike.
  RunContext(World& world, const plan::RunSpec& spec, const std::string& agreed, const RunTestHooks& test_hooks);

  World& world;
  plan::RunPlan plan;
  std::unique_ptr<Communicator> shard_axis, replicate_axis;  // null: the axis has one rank
  std::unique_ptr<Arena> arena;
  shard::ShardManager manager;

  /// This rank's place in the data: micro-batch m = a·W + place.
  [[nodiscard]] int place() const;
  /// Fresh parameters: a function of (seed, name, element) alone.
  void initialise(std::uint64_t seed);
  /// This rank's master shards, one per unit.
  [[nodiscard]] std::vector<io::ShardView> shards();
  [[nodiscard]] TrafficCount traffic(Axis axis) const;
  /// A slot's bytes; empty if the plan has none of that name.
  [[nodiscard]] std::span<std::byte> room(const char* slot);

  /// Does `work`. What one rank alone runs into in it ends the run everywhere, since its peers wait in a collective.
  template <class Work>
  void alone(std::int64_t step, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.code() == ExitCode::diverged || error.code() == ExitCode::communication)
        throw;  // known to all, or of all
      world.abort(error);
    } catch (const std::exception& error) {
      world.abort(Error(ExitCode::internal, error.what(), strfmt("step %lld", static_cast<long long>(step))));
    }
  }

 private:
  [[nodiscard]] plan::RunPlan make_plan(plan::RunSpec spec, const std::string& agreed, const RunTestHooks& test_hooks);
  [[nodiscard]] std::unique_ptr<Communicator> communicator(Axis axis, const Delay& delay);
  [[nodiscard]] std::unique_ptr<Arena> make_arena();
  [[nodiscard]] std::byte* share(const ArenaSlot& slot, std::size_t bytes);
};

}  // namespace tessera::train
