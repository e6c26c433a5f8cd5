// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/update_order.hpp"

namespace tessera::shard {

Updates::Updates(const BufferPlan& plan, Schedule& schedule, InstructionList& list, Staging& staging)
    : plan_(plan), s_(schedule), list_(list), staging_(staging), last_read_(plan.units.size(), -1) {
  for (std::size_t t = 0; t < plan.executions.size(); ++t)
    for (const int unit : plan.executions[t].units) last_read_[at(unit)] = static_cast<int>(t);
}

void Updates::finished(int unit, int stored, int execution) {
  const ScheduledUnit& record = s_.units[at(unit)];
  Pending pending{unit, stored, {}, -1};
  const bool unread = !record.params_offloaded() || last_read_[at(unit)] < execution;
  if (!s_.updates_before_norm || !record.update_on_host || !unread) {
    pending_.push_back(pending);
    return;
  }
  fetch(pending);
  update(pending, -1);
  done_.push_back(pending);
}

void Updates::fetch(Pending& pending) {
  const ScheduledUnit& unit = s_.units[at(pending.unit)];
  if (!unit.stages_update()) return;
  const bool with_grads = !unit.update_reaches(unit.placement.grads);
  pending.staged = staging_.fetch(StateKind::optimizer, pending.unit, -1, with_grads ? pending.stored : -1);
}

void Updates::fetch_ahead() {
  std::ranges::sort(pending_, {}, &Pending::unit);
  const std::size_t ahead = plan_.stage_slots[static_cast<std::size_t>(StateKind::optimizer)].size();
  for (; fetched_ < std::min(ahead, pending_.size()); ++fetched_) fetch(pending_[fetched_]);
}

void Updates::update(Pending& pending, int norm) {
  const ScheduledUnit& unit = s_.units[at(pending.unit)];
  Instruction in{.op = Op::update, .stream = StreamId::compute, .unit = pending.unit};
  if (unit.update_on_host) in.stream = StreamId::host;
  in.stage = pending.staged.slot;
  pending.update = list_.add(std::move(in), {norm, pending.stored, pending.staged.ready});
  if (pending.staged.slot >= 0)
    staging_.store(StateKind::optimizer, pending.unit, -1, pending.staged.slot, pending.update);
}

void Updates::fetch_updated(const Pending& pending, int norm) {
  if (!s_.units[at(pending.unit)].fetches_updated()) return;
  Instruction in{.op = Op::fetch, .stream = StreamId::fetch, .unit = pending.unit};
  in.state = StateKind::params;
  list_.add(std::move(in), {pending.update, norm});
}

void Updates::emit(int norm) {
  for (const Pending& pending : done_) fetch_updated(pending, norm);
  for (Pending& pending : pending_) {
    update(pending, norm);
    if (fetched_ < pending_.size()) fetch(pending_[fetched_++]);  // into the slot that is free after this update
    fetch_updated(pending, norm);
  }
}

}  // namespace tessera::shard
