// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verifier's account of offloaded states: what their tiers and the staging slots hold.

#include <vector>

#include "runtime/shard/use_order.hpp"

namespace tessera::shard {

class PlacedStates {
 public:
  PlacedStates(const Schedule& schedule, UseOrder& order, std::vector<UnitState>& units);

  /// All but a fetch of params into the unit's shard on the device: takes_update.
  void fetch(const Instruction& in);
  void store(const Instruction& in);
  /// A gather reads the shard in its staging slot.
  void gather(const Instruction& in);
  /// A sum uses the unit's accumulators in its staging slot.
  void reduce(const Instruction& in);
  /// An update reads the gradient, and reads and writes states of the optimizer and params. False: what it needs is not
  /// there.
  [[nodiscard]] bool update(const Instruction& in);
  /// A fetch reads what the update on the host has written for the device.
  void takes_update(const Instruction& in);
  /// What is not stored, or not used, at the end of a step. `updates`: of a unit with a gradient, by now.
  void end_of_step(int updates);

 private:
  /// A state in its tier: the number of updates that it contains.
  struct Home : Uses {
    int version = 0;
  };
  struct Unit {
    Home params, optimizer;
    Home updated;  // params that the host has updated, for the device
    Home shard;    // params on the device
    Uses grads;
    std::vector<Sum> sums;  // the accumulators in their tier
    bool finished = false;  // they have the finished gradient
  };
  struct Stage : Uses {
    int unit = -1;         // -1: free
    bool changed = false;  // and not stored
    int version = 0;
    bool finished = false;  // it has the finished gradient too
  };
  [[nodiscard]] Stage* stage_of(const Instruction& in);
  void take(Stage& stage, int unit);
  [[nodiscard]] bool trains(int unit) const { return units_[at(unit)].contributors > 0 && !s_.grad_slots.empty(); }
  [[nodiscard]] const ScheduledUnit& record(const Instruction& in) const { return s_.units[at(in.unit)]; }

  const Schedule& s_;
  UseOrder& order_;
  std::vector<UnitState>& units_;
  std::vector<Unit> placed_;   // by unit
  std::vector<Stage> stages_;  // by slot
};

}  // namespace tessera::shard
