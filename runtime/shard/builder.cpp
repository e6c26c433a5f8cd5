// SPDX-License-Identifier: Apache-2.0
// buffer_plan decides which unit is in which buffer, and when; this file makes the order of instructions, and the
// dependencies between streams.

#include "runtime/shard/builder.hpp"

#include <algorithm>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/activation_slots.hpp"
#include "runtime/shard/activation_stages.hpp"
#include "runtime/shard/buffer_plan.hpp"
#include "runtime/shard/instruction_list.hpp"
#include "runtime/shard/reduce_stream.hpp"
#include "runtime/shard/update_order.hpp"

namespace tessera::shard {
namespace {

/// Gathers and releases of units, in the order of the plan's lifetimes.
class Gathers {
 public:
  Gathers(const BufferPlan& plan, Schedule& schedule, InstructionList& list, Staging& staging)
      : plan_(plan),
        s_(schedule),
        list_(list),
        staging_(staging),
        gather_index_(plan.lifetimes.size(), -1),
        release_index_(plan.lifetimes.size(), -1),
        ending_(plan.executions.size()),
        gather_of_(plan.units.size(), -1),
        slot_of_(plan.resident_slot) {
    for (std::size_t k = 0; k < plan.lifetimes.size(); ++k) ending_[at(plan.lifetimes[k].last_read)].push_back(k);
  }

  void emit_gathers(int execution) {
    for (; next_ < plan_.lifetimes.size() && plan_.lifetimes[next_].gathered_before == execution; ++next_) {
      const BufferLifetime& lifetime = plan_.lifetimes[next_];
      const bool resident = s_.units[at(lifetime.unit)].params_resident;
      const int freed = lifetime.evicts >= 0 ? release_index_[at(lifetime.evicts)] : -1;
      Instruction in{.op = Op::gather,
                     .stream = StreamId::gather,
                     .unit = lifetime.unit,
                     .micro = resident ? -1 : plan_.executions[at(lifetime.first_read)].micro,
                     .slot = lifetime.slot};
      Staging::Taken shard;
      if (s_.units[at(lifetime.unit)].params_offloaded())
        shard = staging_.fetch(StateKind::params, lifetime.unit, in.micro);
      in.stage = shard.slot;
      gather_index_[next_] = list_.add(std::move(in), {freed, shard.ready});
      if (shard.slot >= 0) staging_.free(shard.slot, gather_index_[next_]);
      add_user(s_.slots[at(lifetime.slot)], lifetime.unit);
      unread_.push_back(next_);
    }
    // From its first read, a unit is in the slot that its gather names.
    std::erase_if(unread_, [&](std::size_t k) {
      const BufferLifetime& lifetime = plan_.lifetimes[k];
      if (lifetime.first_read != execution) return false;
      gather_of_[at(lifetime.unit)] = gather_index_[k];
      slot_of_[at(lifetime.unit)] = lifetime.slot;
      return true;
    });
  }

  void emit_releases(int execution) {
    for (const std::size_t k : ending_[at(execution)]) {
      const BufferLifetime& lifetime = plan_.lifetimes[k];
      if (s_.units[at(lifetime.unit)].params_resident) continue;
      release_index_[k] = list_.add({.op = Op::release,
                                     .stream = StreamId::compute,
                                     .unit = lifetime.unit,
                                     .micro = plan_.executions[at(execution)].micro,
                                     .slot = lifetime.slot},
                                    {});
    }
  }

  /// The gather that brought the unit into its slot; -1: none of this schedule.
  [[nodiscard]] int gather_of(int unit) const { return gather_of_[at(unit)]; }
  [[nodiscard]] int slot_of(int unit) const { return slot_of_[at(unit)]; }

 private:
  const BufferPlan& plan_;
  Schedule& s_;
  InstructionList& list_;
  Staging& staging_;
  std::size_t next_ = 0;                           // lifetime
  std::vector<int> gather_index_, release_index_;  // lifetime → instruction
  std::vector<std::vector<std::size_t>> ending_;   // execution → lifetimes that end with it
  std::vector<std::size_t> unread_;       // lifetimes whose gather is in the list, and whose unit is not read yet
  std::vector<int> gather_of_, slot_of_;  // by unit
};

/// The slots of gradients, and the instructions that reduce them.
class Reduces {
 public:
  Reduces(const ScheduleInput& input, const BufferPlan& plan, Schedule& schedule, InstructionList& list,
          Staging& staging)
      : in_(input),
        plan_(plan),
        s_(schedule),
        list_(list),
        staging_(staging),
        busy_(plan.slots.size(), false),
        last_use_(plan.slots.size(), -1),
        all_reduce_(plan.units.size(), -1),
        store_(plan.units.size(), -1) {
    s_.grad_slots.assign(at(s_.num_micro) * plan.units.size(), -1);
  }

  /// Assigns a slot to the gradient of (unit, micro): the free slot of its class that was read longest ago. Returns the
  /// instruction that read it last, or -1.
  int take_slot(int unit, int micro) {
    const int slot = take(plan_.grad_slots[at(unit)], unit);
    busy_[at(slot)] = true;
    s_.grad_slots[at(micro) * plan_.units.size() + at(unit)] = slot;
    return last_use_[at(slot)];
  }

  /// The gradient of (unit, micro) is complete once the latest backward has run.
  void complete(int unit, int micro) { complete_.emplace_back(unit, micro); }

  /// Reduces what is complete, after `backward`. Returns the units whose gradient is then finished.
  std::vector<int> emit(int backward) {
    std::vector<int> finished;
    for (const auto& [unit, micro] : complete_) {
      if (s_.units[at(unit)].adds_in_slot && micro + 1 < in_.num_micro) continue;
      const int slot = s_.grad_slot(unit, micro);
      if (s_.units[at(unit)].reduced_twice()) reduce_twice(unit, micro, slot, backward);
      else reduce(unit, micro, slot, backward);
      busy_[at(slot)] = false;
      if (micro + 1 == in_.num_micro) finished.push_back(unit);
    }
    complete_.clear();
    return finished;
  }

  /// The latest all_reduce of the replicate stream; -1: none.
  [[nodiscard]] int last_all_reduce() const { return last_all_reduce_; }
  /// The latest store of the unit's gradient accumulators; -1: none.
  [[nodiscard]] int store_of(int unit) const { return store_[at(unit)]; }

 private:
  /// If the accumulators of the unit are offloaded: a staging slot, with the sums of the micro-batches before.
  Staging::Taken stage(int unit, int micro) {
    if (!s_.units[at(unit)].grads_offloaded()) return {};
    const bool adds = micro > 0 && !s_.units[at(unit)].adds_in_slot;
    return adds ? staging_.fetch(StateKind::grads, unit, micro, store_[at(unit)])
                : staging_.take(StateKind::grads, unit);
  }
  void store(int unit, int micro, int slot, int reduce) {
    if (slot >= 0) store_[at(unit)] = staging_.store(StateKind::grads, unit, micro, slot, reduce);
  }

  /// The free slot of `slots` that was used longest ago.
  int take(const std::vector<int>& slots, int unit) {
    int best = -1;
    for (const int s : slots) {
      if (busy_[at(s)] && !s_.slots[at(s)].resident) continue;
      if (best < 0 || last_use_[at(s)] < last_use_[at(best)]) best = s;
    }
    TESSERA_ASSERT(best >= 0, "no slot for unit %d", unit);
    add_user(s_.slots[at(best)], unit);
    return best;
  }

  /// One instruction reduces the gradient and adds it.
  void reduce(int unit, int micro, int slot, int backward) {
    const bool replicated = !s_.units[at(unit)].replicate_axes.empty();
    Instruction in{.op = replicated ? Op::all_reduce : Op::reduce_scatter,
                   .stream = replicated ? all_reduce_stream(s_.units, unit) : StreamId::reduce,
                   .unit = unit,
                   .micro = micro,
                   .slot = slot,
                   .accumulation = accumulation_of(unit, micro),
                   .last_reduce = micro + 1 == in_.num_micro};
    if (const std::vector<int>& sums = plan_.sum_slots[at(unit)]; !in.accumulation.inputs.empty() && !sums.empty())
      in.sum = take(sums, unit);
    const Staging::Taken staged = stage(unit, micro);
    in.stage = staged.slot;
    const int sum = in.sum, used = sum >= 0 ? last_use_[at(sum)] : -1;
    const bool on_replicate = in.stream == StreamId::replicate;
    const int reduced = last_use_[at(slot)] = list_.add(std::move(in), {backward, staged.ready, used});
    if (sum >= 0) last_use_[at(sum)] = reduced;
    if (on_replicate) last_all_reduce_ = reduced;
    store(unit, micro, staged.slot, reduced);
  }

  /// A reduce_scatter, and an all_reduce after it; with shard_each, after the last only.
  void reduce_twice(int unit, int micro, int slot, int backward) {
    const bool last = micro + 1 == in_.num_micro, shard_each = in_.policy.reduce == Reduce::shard_each;
    const Accumulation accumulation = accumulation_of(unit, micro);
    Instruction scatter{
        .op = Op::reduce_scatter, .stream = StreamId::reduce, .unit = unit, .micro = micro, .slot = slot};
    scatter.accumulation.target = accumulation.target;
    if (shard_each) scatter.accumulation = accumulation;
    if (!accumulation.inputs.empty()) scatter.sum = take(plan_.sum_slots[at(unit)], unit);
    // It overwrites a sum slot, or an accumulator of the unit.
    const int used = scatter.sum >= 0 && !shard_each ? last_use_[at(scatter.sum)] : all_reduce_[at(unit)];
    Instruction all{.op = Op::all_reduce, .stream = StreamId::replicate, .unit = unit, .micro = micro};
    all.accumulation.target = accumulation.target;
    if (!shard_each) {
      all.sum = scatter.sum;
      all.accumulation = accumulation;
    }
    all.last_reduce = last;
    const Staging::Taken staged = stage(unit, micro);
    scatter.stage = all.stage = staged.slot;
    last_use_[at(slot)] = list_.add(std::move(scatter), {backward, used, staged.ready});
    if (shard_each && !last) return store(unit, micro, staged.slot, last_use_[at(slot)]);
    const int sum = all.sum;
    last_all_reduce_ = all_reduce_[at(unit)] = list_.add(std::move(all), {last_use_[at(slot)]});
    store(unit, micro, staged.slot, last_all_reduce_);
    if (sum >= 0) last_use_[at(sum)] = last_all_reduce_;
  }

  /// How the gradient of micro-batch a is accumulated: running sum, or binary-counter tree.
  [[nodiscard]] Accumulation accumulation_of(int unit, int a) const {
    const int num_accumulators = plan_.units[at(unit)].num_accumulators;
    Accumulation accumulation;
    if (num_accumulators == 0 || plan_.units[at(unit)].adds_in_slot) return accumulation;
    if (!in_.policy.reproducible) {
      if (a > 0) accumulation.inputs.push_back(0);
      return accumulation;
    }
    for (; (a >> accumulation.target) & 1; ++accumulation.target)
      accumulation.inputs.push_back(accumulation.target);  // trailing one bits of a
    if (a + 1 < in_.num_micro) return accumulation;
    for (int p = accumulation.target + 1; p < num_accumulators; ++p)
      if (((a + 1) >> p) & 1) accumulation.inputs.push_back(p);  // the last micro-batch adds the rest: bits of a + 1
    accumulation.target = 0;
    return accumulation;
  }

  const ScheduleInput& in_;
  const BufferPlan& plan_;
  Schedule& s_;
  InstructionList& list_;
  Staging& staging_;
  std::vector<bool> busy_;       // slot → holds a gradient that is not reduced yet
  std::vector<int> last_use_;    // slot → the latest reduce_scatter or all_reduce that used it
  std::vector<int> all_reduce_;  // unit → its latest all_reduce of the replicate stream
  std::vector<int> store_;       // unit → the latest store of its accumulators
  int last_all_reduce_ = -1;     // of all units
  std::vector<std::pair<int, int>> complete_;
};

Schedule new_schedule(const ScheduleInput& input, const BufferPlan& plan, ScheduleKind kind) {
  Schedule schedule;
  schedule.units = plan.units;
  schedule.modules = input.modules;
  schedule.references = input.references;
  schedule.slots = plan.slots;
  schedule.num_micro = kind == ScheduleKind::train ? input.num_micro : 1;
  place_activations(input, kind, schedule);
  return schedule;
}

using Indices = std::vector<int>;

/// The instruction of a module execution, after the gathers of the units it reads, and `wants`.
struct ModuleInstruction {
  Op op = Op::forward;
  const ModuleExecution* execution = nullptr;
  std::vector<int> units, wants;
};

int add(InstructionList& list, const ModuleUse& use, const Gathers& gathers, ModuleInstruction of) {
  std::vector<std::pair<int, int>> reads;
  for (const int u : of.units) {
    reads.emplace_back(u, gathers.slot_of(u));
    of.wants.push_back(gathers.gather_of(u));
  }
  Instruction in{.op = of.op, .stream = StreamId::compute, .module = of.execution->module};
  in.instance = of.execution->instance;
  in.micro = of.execution->micro;
  return add_stages(list, use, in, std::move(of.wants), reads);
}

int add_norm(InstructionList& list, std::vector<int> after) {
  return list.add({.op = Op::norm, .stream = StreamId::reduce}, std::move(after));
}

}  // namespace

Schedule build_train(const ScheduleInput& input) {
  const BufferPlan plan = plan_buffers(input, ScheduleKind::train);
  Schedule schedule = new_schedule(input, plan, ScheduleKind::train);
  schedule.recompute = input.policy.recompute;
  schedule.updates_before_norm = input.policy.updates_before_norm;
  InstructionList list(schedule);
  Staging staging(plan, schedule, list);
  Gathers gathers(plan, schedule, list, staging);
  Reduces reduces(input, plan, schedule, list, staging);
  Updates updates(plan, schedule, list, staging);
  ActivationStages activations(input, plan, schedule, list);
  const auto reduce = [&](int backward, int execution) {
    for (const int unit : reduces.emit(backward)) updates.finished(unit, reduces.store_of(unit), execution);
  };
  int last = -1;  // the latest forward, recompute or backward
  for (int t = 0; t < static_cast<int>(plan.executions.size()); ++t) {
    const ModuleExecution& execution = plan.executions[at(t)];
    const int module = execution.module, micro = execution.micro;
    gathers.emit_gathers(t);
    reduce(last, t);
    if (execution.forward) {
      const bool itself = execution.instance == 0;
      last = add(
          list, schedule.modules_of(execution.instance)[at(module)], gathers,
          {Op::forward, &execution, execution.units, itself ? activations.begin_forward(module, micro) : Indices()});
      if (itself) activations.end_forward(module, micro, last);
    } else {
      const ModuleUse& use = input.modules[at(module)];
      std::vector<int> wants = activations.begin_backward(module, micro);
      if (schedule.recomputes(module))
        add(list, use, gathers, {Op::recompute, &execution, union_of({}, use.forward_units), wants});
      for (const int u : use.grad_units)
        if (plan.first_contributor[at(u)] == module) wants.push_back(reduces.take_slot(u, micro));
      last = add(list, use, gathers, {Op::backward, &execution, union_of({}, use.backward_units), std::move(wants)});
      activations.end_backward(module, last);
      for (const int u : union_of({}, use.grad_units))
        if (plan.last_contributor[at(u)] == module) reduces.complete(u, micro);
    }
    gathers.emit_releases(t);
  }
  reduce(last, static_cast<int>(plan.executions.size()));
  updates.fetch_ahead();
  // After every reduce_scatter, in stream order, every all_reduce, and the last loss.
  updates.emit(add_norm(list, {last, reduces.last_all_reduce()}));
  return schedule;
}

Schedule build_forward(const ScheduleInput& input, bool with_loss) {
  const BufferPlan plan = plan_buffers(input, ScheduleKind::forward);
  Schedule schedule = new_schedule(input, plan, ScheduleKind::forward);
  InstructionList list(schedule);
  Staging staging(plan, schedule, list);
  Gathers gathers(plan, schedule, list, staging);
  int last = -1;
  for (int t = 0; t < static_cast<int>(plan.executions.size()); ++t) {
    const ModuleExecution& execution = plan.executions[at(t)];
    gathers.emit_gathers(t);
    last = add(list, schedule.modules_of(execution.instance)[at(execution.module)], gathers,
               {Op::forward, &execution, execution.units, {}});
    gathers.emit_releases(t);
  }
  if (with_loss) add_norm(list, {last});
  return schedule;
}

Schedule build_load(const ScheduleInput& input) {
  Schedule schedule;
  InstructionList list(schedule);
  for (const UnitInput& unit : input.units) {
    const int u = static_cast<int>(schedule.units.size());
    schedule.units.push_back(scheduled_unit(input, unit));
    const ScheduledUnit& scheduled = schedule.units.back();
    if (!scheduled.sharded() || scheduled.gathered_in_runs()) continue;
    const int slot = static_cast<int>(schedule.slots.size());
    schedule.slots.push_back({Slot::Kind::param, true, {u}, {}});
    list.add({.op = Op::gather, .stream = StreamId::gather, .unit = u, .slot = slot}, {});
  }
  return schedule;
}

}  // namespace tessera::shard
