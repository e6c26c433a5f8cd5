// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/placed_states.hpp"

namespace tessera::shard {

PlacedStates::PlacedStates(const Schedule& schedule, UseOrder& order, std::vector<UnitState>& units)
    : s_(schedule), order_(order), units_(units), placed_(schedule.units.size()), stages_(schedule.slots.size()) {
  for (std::size_t u = 0; u < placed_.size(); ++u) placed_[u].sums.resize(at(s_.units[u].num_accumulators));
}

/// The staging slot of an instruction, if it holds a state of its unit.
PlacedStates::Stage* PlacedStates::stage_of(const Instruction& in) {
  Stage& stage = stages_[at(in.stage)];
  if (stage.unit == in.unit) return &stage;
  order_.fail(strfmt("uses staging slot %d, where %s is", in.stage, order_.unit_name(stage.unit)));
  return nullptr;
}

/// Begins a use of a free slot.
void PlacedStates::take(Stage& stage, int unit) {
  if (stage.unit >= 0)
    order_.fail(strfmt("takes the staging slot of %s%s", order_.unit_name(stage.unit),
                       stage.changed ? ", which is not stored" : ""));
  order_.write(stage, "its staging slot");
  stage.unit = unit;
  stage.changed = stage.finished = false;
}

void PlacedStates::fetch(const Instruction& in) {
  if (in.stage < 0) return takes_update(in);
  Stage& stage = stages_[at(in.stage)];
  Unit& unit = placed_[at(in.unit)];
  take(stage, in.unit);
  if (in.state == StateKind::params) {
    order_.read(unit.params, "the params that it fetches");
    stage.version = unit.params.version;
  } else if (in.state == StateKind::grads) {
    order_.read(unit.grads, "the gradient accumulators that it fetches");
    std::vector<SumBuffer>& accumulators = units_[at(in.unit)].accumulators;
    for (std::size_t p = 0; p < accumulators.size(); ++p) {
      if (!accumulators[p].sum.micros.empty()) order_.fail("overwrites gradient accumulators that are not stored");
      accumulators[p].sum = unit.sums[p];
    }
  } else {
    order_.read(unit.optimizer, "the states that it fetches");
    stage.version = unit.optimizer.version;
    if (record(in).update_reaches(record(in).placement.grads)) return;
    order_.read(unit.grads, "the gradient that it fetches");
    stage.finished = unit.finished;
  }
}

void PlacedStates::store(const Instruction& in) {
  Stage* const stage = stage_of(in);
  if (stage == nullptr) return;
  Unit& unit = placed_[at(in.unit)];
  if (!stage->changed) order_.fail("stores what has not been written");
  order_.read(*stage, "its staging slot");
  stage->unit = -1;
  stage->changed = false;
  if (in.state == StateKind::grads) {
    order_.write(unit.grads, "the gradient accumulators that it stores");
    std::vector<SumBuffer>& accumulators = units_[at(in.unit)].accumulators;
    for (std::size_t p = 0; p < accumulators.size(); ++p) {
      unit.sums[p] = accumulators[p].sum;
      accumulators[p].sum = {};
    }
    unit.finished = units_[at(in.unit)].complete;
    return;
  }
  order_.write(unit.optimizer, "the states that it stores");
  unit.optimizer.version = stage->version;
  if (!record(in).params_offloaded() || record(in).update_reaches(record(in).placement.params)) return;
  order_.write(unit.params, "the params that it stores");
  unit.params.version = stage->version;
}

void PlacedStates::gather(const Instruction& in) {
  Stage* const stage = stage_of(in);
  if (stage == nullptr) return;
  order_.read(*stage, "its staging slot");
  if (trains(in.unit) && stage->version != order_.step) order_.fail("reads params that are not those of this step");
  stage->unit = -1;
}

void PlacedStates::reduce(const Instruction& in) {
  Stage& stage = stages_[at(in.stage)];
  if (stage.unit < 0) take(stage, in.unit);
  else if (stage_of(in) == nullptr) return;
  order_.write(stage, "its staging slot");
  stage.changed = true;
}

bool PlacedStates::update(const Instruction& in) {
  Unit& unit = placed_[at(in.unit)];
  const ScheduledUnit& of = record(in);
  Stage* const stage = of.stages_update() ? stage_of(in) : nullptr;
  if (of.stages_update() && stage == nullptr) return false;
  const bool staged_grads = of.grads_offloaded() && !of.update_reaches(of.placement.grads);
  if (of.grads_offloaded()) {
    if (!(staged_grads ? stage->finished : unit.finished)) {
      order_.fail("has no complete gradient in its tier");
      return false;
    }
    if (!staged_grads) order_.read(unit.grads, "its gradient");
    unit.finished = false;
    for (Sum& sum : unit.sums) sum = {};
  }
  if (stage != nullptr) {
    if (stage->changed) order_.fail("updates twice what it has fetched once");
    order_.write(*stage, "its staging slot");
    stage->changed = true;
  } else {
    order_.write(unit.optimizer, "the states of its optimizer");
  }
  int& version = stage != nullptr ? stage->version : unit.optimizer.version;
  if (version != order_.step) order_.fail("reads states that are not those of this step");
  ++version;
  if (of.params_offloaded() && of.update_reaches(of.placement.params)) {
    order_.write(unit.params, "its params");
    unit.params.version = version;
  }
  if (of.fetches_updated()) {
    order_.write(unit.updated, "its updated params");
    unit.updated.version = version;
  }
  return true;
}

void PlacedStates::takes_update(const Instruction& in) {
  Unit& unit = placed_[at(in.unit)];
  order_.read(unit.updated, "the params that it fetches");
  unit.shard.version = unit.updated.version;
}

void PlacedStates::end_of_step(int updates) {
  const auto end = [&](const std::string& what) { order_.violations.push_back({-1, "end of the step: " + what}); };
  for (const Stage& stage : stages_)
    if (stage.unit >= 0) end(strfmt("a staging slot has %s", order_.unit_name(stage.unit)));
  for (std::size_t u = 0; u < placed_.size(); ++u) {
    const ScheduledUnit& unit = s_.units[u];
    if (!trains(static_cast<int>(u)) || !unit.optimizer_offloaded() || s_.grad_slots.empty()) continue;
    const auto check = [&](const Home& home, const char* what) {
      if (home.version != updates) end(strfmt("%s of %s are not those of its update", what, unit.name.c_str()));
    };
    check(placed_[u].optimizer, "the states");
    if (unit.params_offloaded()) check(placed_[u].params, "the params");
    if (unit.fetches_updated()) check(placed_[u].shard, "the params on the device");
  }
}

}  // namespace tessera::shard
