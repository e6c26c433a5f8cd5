// SPDX-License-Identifier: Apache-2.0
// What fetch, store and update do to offloaded states.

#include "tests/shard/machine.hpp"

namespace tessera::test {

using shard::StateKind;

void Machine::begin_fetch(Rank& r, const Instruction& in) {
  const Home& home = r.homes[at(in.unit)];
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (in.stage < 0) {
    reads(home.updated);
    return begin_shard(r, in.unit);
  }
  if (!slot_fits(in.stage, in.unit, Slot::Kind::stage)) wrong(rank_, in, "runs over its staging slot");
  Stage& stage = r.stages[at(in.stage)];
  const bool grads =
      in.state == StateKind::grads || (in.state == StateKind::optimizer && !unit.update_reaches(unit.placement.grads));
  for (std::size_t p = 0; grads && p < home.sums.size(); ++p) {
    reads(home.sums[p]);
    writes(stage.sums[p]);
  }
  if (in.state == StateKind::grads) return;
  reads(in.state == StateKind::params ? home.params : home.optimizer);
  writes(stage);
}

void Machine::complete_fetch(Rank& r, const Instruction& in) {
  const Home& home = r.homes[at(in.unit)];
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (in.stage < 0) {
    r.masters[at(in.unit)].version = home.updated.version;
    return complete_shard(r, in.unit);
  }
  Stage& stage = r.stages[at(in.stage)];
  const auto copy = [](Gradient& to, const Gradient& from) {
    const Cell cell = to;
    to = from;
    static_cast<Cell&>(to) = cell;
  };
  const bool grads =
      in.state == StateKind::grads || (in.state == StateKind::optimizer && !unit.update_reaches(unit.placement.grads));
  for (std::size_t p = 0; grads && p < home.sums.size(); ++p) copy(stage.sums[p], home.sums[p]);
  if (in.state == StateKind::grads) return;
  stage.unit = in.unit;
  stage.version = (in.state == StateKind::params ? home.params : home.optimizer).version;
}

void Machine::begin_store(Rank& r, const Instruction& in) {
  Home& home = r.homes[at(in.unit)];
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (!slot_fits(in.stage, in.unit, Slot::Kind::stage)) wrong(rank_, in, "runs over its staging slot");
  Stage& stage = r.stages[at(in.stage)];
  if (in.state == StateKind::grads) {
    for (std::size_t p = 0; p < home.sums.size(); ++p) {
      reads(stage.sums[p]);
      writes(home.sums[p]);
    }
    return;
  }
  if (stage.unit != in.unit) wrong(rank_, in, "stores the states of another unit");
  reads(stage);
  writes(home.optimizer);
  if (unit.params_offloaded() && !unit.update_reaches(unit.placement.params)) writes(home.params);
}

void Machine::complete_store(Rank& r, const Instruction& in) {
  Home& home = r.homes[at(in.unit)];
  const Stage& stage = r.stages[at(in.stage)];
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (in.state != StateKind::grads) {
    home.optimizer.version = stage.version;
    if (unit.params_offloaded() && !unit.update_reaches(unit.placement.params)) home.params.version = stage.version;
    return;
  }
  for (std::size_t p = 0; p < home.sums.size(); ++p) {
    const Cell cell = home.sums[p];
    home.sums[p] = stage.sums[p];
    static_cast<Cell&>(home.sums[p]) = cell;
  }
}

/// The states of the optimizer, and params that are not on the device.
void Machine::begin_placed_update(Rank& r, const Instruction& in) {
  Home& home = r.homes[at(in.unit)];
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  int version_of_states = home.optimizer.version;
  if (unit.stages_update()) {
    Stage& stage = r.stages[at(in.stage)];
    if (stage.unit != in.unit) wrong(rank_, in, "works on the states of another unit");
    writes(stage);
    version_of_states = stage.version;
  } else {
    writes(home.optimizer);
  }
  if (version_of_states != version(in.unit, step_)) wrong(rank_, in, "works on old states");
  if (unit.params_offloaded() && unit.update_reaches(unit.placement.params)) writes(home.params);
  if (unit.fetches_updated()) writes(home.updated);
}

void Machine::complete_placed_update(Rank& r, const Instruction& in) {
  Home& home = r.homes[at(in.unit)];
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  const int updated = unit.stages_update() ? ++r.stages[at(in.stage)].version : ++home.optimizer.version;
  if (unit.params_offloaded() && unit.update_reaches(unit.placement.params)) home.params.version = updated;
  if (unit.fetches_updated()) home.updated.version = updated;
}

}  // namespace tessera::test
