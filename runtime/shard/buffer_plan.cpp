// SPDX-License-Identifier: Apache-2.0
// Units that are not resident share slots (slot_classes.hpp), one after another (buffer_lifetimes.hpp).

#include "runtime/shard/buffer_plan.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/slot_classes.hpp"

namespace tessera::shard {
namespace {

void check(const ScheduleInput& in, ScheduleKind kind) {
  if (in.num_micro < 1 || in.modules.empty()) throw std::logic_error("a schedule needs a module and a micro-batch");
  if (in.policy.forward_prefetch < 0 || in.policy.backward_prefetch < 0)
    throw std::logic_error("a prefetch depth below 0");
  if (in.policy.staging_slots < 1) throw std::logic_error("no staging slots");
  if (in.policy.activations == Tier::disk) throw std::logic_error("activations on disk");
  if (in.policy.reproducible && in.policy.reduce == Reduce::last)
    throw std::logic_error("reproducible sums reduce each micro-batch: it cannot be combined with reduce = last");
  for (const ModuleUse& m : in.modules)
    for (const auto* units : {&m.forward_units, &m.backward_units, &m.grad_units})
      for (const int u : *units) {
        if (u < 0 || at(u) >= in.units.size())
          throw std::logic_error(strfmt("module %s names unit %d", m.name.c_str(), u));
        if (kind == ScheduleKind::train && units == &m.grad_units && !in.units[at(u)].trainable)
          throw std::logic_error(strfmt("module %s contributes to the gradient of unit %s, which is not trainable",
                                        m.name.c_str(), in.units[at(u)].name.c_str()));
      }
  for (const ReferenceModel& reference : in.references)
    for (const ModuleUse& m : reference.modules) {
      if (!m.grad_units.empty() || !m.backward_units.empty())
        throw std::logic_error(strfmt("module %s:%s has a backward", reference.name.c_str(), m.name.c_str()));
      for (const int u : m.forward_units)
        if (u < 0 || at(u) >= in.units.size())
          throw std::logic_error(strfmt("module %s:%s names unit %d", reference.name.c_str(), m.name.c_str(), u));
    }
}

std::vector<ModuleExecution> executions_of(const ScheduleInput& in, ScheduleKind kind) {
  const bool train = kind == ScheduleKind::train;
  const int n = static_cast<int>(in.modules.size()), num_micro = train ? in.num_micro : 1,
            first = first_backward(in.modules);
  std::vector<ModuleExecution> out;
  for (int m = 0; m < num_micro; ++m) {
    for (std::size_t r = 0; r < in.references.size(); ++r)
      for (std::size_t i = 0; i < in.references[r].modules.size(); ++i)
        out.push_back({static_cast<int>(i), m, true, union_of({}, in.references[r].modules[i].forward_units),
                       static_cast<int>(r) + 1});
    for (int i = 0; i < n; ++i) out.push_back({i, m, true, union_of({}, in.modules[at(i)].forward_units)});
    for (int i = n - 1; train && i >= first; --i) {
      const ModuleUse& use = in.modules[at(i)];
      const bool recomputes = shard::recomputes(in.policy.recompute) && use.recomputable;
      out.push_back({i, m, false, union_of(recomputes ? use.forward_units : std::vector<int>{}, use.backward_units)});
    }
  }
  return out;
}

/// Appends num_slots slots and returns their indices.
std::vector<int> add_slots(BufferPlan& plan, Slot::Kind kind, int num_slots) {
  std::vector<int> indices;
  for (int k = 0; k < num_slots; ++k) {
    indices.push_back(static_cast<int>(plan.slots.size()));
    plan.slots.push_back({kind, false, {}, {}});
  }
  return indices;
}

/// Staging slots of the states that the schedule moves.
void plan_stages(const ScheduleInput& in, BufferPlan& plan, ScheduleKind kind) {
  const auto stage = [&](StateKind state, int num_slots) {
    std::vector<int>& slots = plan.stage_slots[static_cast<std::size_t>(state)];
    slots = add_slots(plan, Slot::Kind::stage, num_slots);
    for (const int slot : slots) plan.slots[at(slot)].state = state;
  };
  const auto add = [&](StateKind state, const auto& offloaded) {
    if (std::ranges::any_of(plan.units, offloaded)) stage(state, in.policy.staging_slots);
  };
  add(StateKind::params, &ScheduledUnit::params_offloaded);
  if (kind != ScheduleKind::train) return;
  add(StateKind::grads, &ScheduledUnit::grads_offloaded);
  add(StateKind::optimizer, &ScheduledUnit::stages_update);
  if (in.policy.activations == Tier::device) return;
  stage(StateKind::input, in.policy.staging_slots + 1);
  if (std::ranges::any_of(in.modules, [](const ModuleUse& m) { return m.saves && m.offloads; }))
    stage(StateKind::saved, in.policy.staging_slots);
}

/// A slot of the unit's own.
int add_resident_slot(BufferPlan& plan, Slot::Kind kind, int unit) {
  plan.slots.push_back({kind, true, {unit}, {}});
  return static_cast<int>(plan.slots.size()) - 1;
}

int lowest_unit(const SlotClass& c) { return c.units.front(); }

/// When the units that are not resident need their slot: from when one may be prefetched until it is read. Computed for
/// one micro-batch: the others are the same, each prefetched during the one before.
std::vector<SlotDemand> param_demands(const ScheduleInput& in, const BufferPlan& plan, int num_micro) {
  const int length = static_cast<int>(plan.executions.size()) / num_micro;
  std::vector<ModuleExecution> executions(plan.executions.begin(), plan.executions.begin() + length);
  for (ModuleExecution& execution : executions)
    std::erase_if(execution.units, [&](int u) { return plan.units[at(u)].params_resident; });
  const std::vector<int> firsts = first_reads(executions);
  std::vector<SlotDemand> demands;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const ScheduledUnit& unit = plan.units[at(u)];
    demands.push_back({u, unit.numel * static_cast<std::int64_t>(size_of(unit.param_dtype)), {}});
  }
  for (int t = 0; t < length; ++t) {
    const ModuleExecution& execution = executions[at(t)];
    const int depth = execution.forward ? in.policy.forward_prefetch : in.policy.backward_prefetch;
    const int most = num_micro > 1 ? length - 1 : t;  // executions ahead
    int ahead = 0;
    for (int counted = 0; ahead < most; ++ahead)
      if (std::ranges::binary_search(firsts, (t - ahead + length) % length) && ++counted > depth) break;
    for (const int u : execution.units)
      for (int k = 0; k <= ahead; ++k) demands[at(u)].times.push_back((t - k + length) % length);
  }
  for (SlotDemand& d : demands) {
    std::sort(d.times.begin(), d.times.end());
    d.times.erase(std::unique(d.times.begin(), d.times.end()), d.times.end());
  }
  std::erase_if(demands, [](const SlotDemand& d) { return d.times.empty(); });
  return demands;
}

void plan_params(const ScheduleInput& in, BufferPlan& plan, int num_micro) {
  std::vector<SlotClass> classes = make_slot_classes(param_demands(in, plan, num_micro));
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u)
    if (plan.units[at(u)].params_resident) classes.push_back({{u}, 1});
  std::ranges::sort(classes, {}, lowest_unit);
  std::vector<std::vector<int>> slots;
  plan.resident_slot.assign(plan.units.size(), -1);
  for (const SlotClass& c : classes) {
    const int u = c.units.front();
    if (plan.units[at(u)].params_resident)
      slots.push_back({plan.resident_slot[at(u)] = add_resident_slot(plan, Slot::Kind::param, u)});
    else slots.push_back(add_slots(plan, Slot::Kind::param, c.num_slots));
  }
  std::vector<ModuleExecution> gathering = plan.executions;
  for (ModuleExecution& execution : gathering)
    std::erase_if(execution.units, [&](int u) { return !plan.units[at(u)].gathered_in_runs(); });
  plan.lifetimes = plan_buffer_lifetimes(gathering, static_cast<int>(plan.units.size()), classes, slots,
                                         {in.policy.forward_prefetch, in.policy.backward_prefetch});
}

void plan_unit_gradient(const ScheduleInput& in, const UnitPolicy& policy, ScheduledUnit& unit) {
  const bool sums_fit = policy.reduce_dtype == DType::f32;  // sums are fp32, so they can replace only fp32 gradients
  const bool replicated = !unit.replicate_axes.empty();
  if (replicated && in.policy.reproducible && in.policy.reduce == Reduce::shard_each)
    throw std::logic_error("reproducible sums reduce each micro-batch over the replicate axes too");
  // With shard_each, a unit that is replicated and not sharded has nothing to reduce before the last micro-batch.
  unit.adds_in_slot = in.num_micro > 1 && (in.policy.reduce == Reduce::last ||
                                           (in.policy.reduce == Reduce::shard_each && replicated && !unit.sharded()));
  const bool reduced_once = in.num_micro == 1 || unit.adds_in_slot;
  // A gradient that is neither sharded nor offloaded is reduced where it is; one that is offloaded leaves its slot at
  // once.
  const bool in_place = sums_fit && reduced_once && !unit.grads_offloaded();
  unit.grads_resident = unit.adds_in_slot || (unit.sharded() ? !policy.shard_grads : in_place);
  unit.num_accumulators = 1;
  if (unit.grads_resident && reduced_once && sums_fit && !unit.grads_offloaded()) unit.num_accumulators = 0;
  else if (in.policy.reproducible)
    for (int a = in.num_micro; a > 1; a /= 2) ++unit.num_accumulators;
}

/// Where a reduced gradient is before it is added to an accumulator. One instruction reduces and adds it, in one slot
/// that all such units share, since these instructions are on one stream; or reduce_scatter reduces it and all_reduce
/// adds it, in two slots, so that the next reduce_scatter need not wait. A running sum of one rank alone needs none.
void plan_sums(const ScheduleInput& in, BufferPlan& plan) {
  plan.sum_slots.resize(plan.units.size());
  for (const bool two : {false, true}) {
    std::vector<int> slots;
    for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
      const ScheduledUnit& unit = plan.units[at(u)];
      const bool adds = plan.last_contributor[at(u)] >= 0 && in.num_micro > 1 && !unit.adds_in_slot;
      const bool from_gradient = unit.summed_alone() && !in.policy.reproducible;
      if (!adds || from_gradient || two != (unit.reduced_twice() && in.policy.reduce == Reduce::each)) continue;
      if (slots.empty()) slots = add_slots(plan, Slot::Kind::sum, two ? 2 : 1);
      plan.sum_slots[at(u)] = slots;
    }
  }
}

/// A gradient needs its slot from its first contribution to its last, and during the next module, which overlaps the
/// reduce. Only units that are reduced over the same groups share slots: their peers may read them in place.
void plan_grads(const ScheduleInput& in, BufferPlan& plan) {
  const int n = static_cast<int>(in.modules.size());
  for (int i = 0; i < n; ++i)  // backward ends with the first module
    for (const int u : in.modules[at(i)].grad_units) {
      if (plan.last_contributor[at(u)] < 0) plan.last_contributor[at(u)] = i;
      plan.first_contributor[at(u)] = i;
    }
  std::vector<SlotClass> classes;
  std::vector<std::vector<SlotDemand>> demands;  // of units with the same groups
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    if (plan.last_contributor[at(u)] < 0) continue;
    ScheduledUnit& unit = plan.units[at(u)];
    plan_unit_gradient(in, in.units[at(u)].policy.value_or(in.policy), unit);
    if (unit.grads_resident) {
      classes.push_back({{u}, 1});
      continue;
    }
    auto same = std::ranges::find_if(demands, [&](const std::vector<SlotDemand>& others) {
      const ScheduledUnit& other = plan.units[at(others.front().unit)];
      return other.shard_axes == unit.shard_axes && other.replicate_axes == unit.replicate_axes;
    });
    if (same == demands.end()) same = demands.insert(demands.end(), std::vector<SlotDemand>{});
    same->push_back({u, unit.numel * static_cast<std::int64_t>(size_of(unit.reduce_dtype)), {}});
    for (int t = n - 1 - plan.first_contributor[at(u)]; t <= n - plan.last_contributor[at(u)]; ++t)
      same->back().times.push_back(t);
  }
  for (std::vector<SlotDemand>& group : demands)
    for (SlotClass& c : make_slot_classes(std::move(group))) classes.push_back(std::move(c));
  std::ranges::sort(classes, {}, lowest_unit);
  for (const SlotClass& c : classes) {
    const int first = c.units.front();
    const std::vector<int> slots = plan.units[at(first)].grads_resident
                                       ? std::vector{add_resident_slot(plan, Slot::Kind::grad, first)}
                                       : add_slots(plan, Slot::Kind::grad, c.num_slots);
    for (const int u : c.units) plan.grad_slots[at(u)] = slots;
  }
}

}  // namespace

std::vector<int> union_of(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> out = a;
  for (const int u : b)
    if (std::find(out.begin(), out.end(), u) == out.end()) out.push_back(u);
  return out;
}

ScheduledUnit scheduled_unit(const ScheduleInput& input, const UnitInput& unit) {
  const UnitPolicy policy = unit.policy.value_or(input.policy);
  const AxisSet shard_axes = input.mesh.used(policy.shard_axes);
  const bool sharded = !shard_axes.empty(), in_place = sharded && unit.params_in_place.value_or(input.params_in_place);
  StatePlacement placement = policy.placement;
  if (!unit.trainable) placement = {.params = placement.params};
  const bool offloaded = placement.params != Tier::device;
  if (placement.optimizer == Tier::device && (placement.grads != Tier::device || (unit.trainable && offloaded)))
    throw std::logic_error("unit " + unit.name + ": only states of the optimizer would be on the device");
  if (placement.optimizer != Tier::device && input.updates_on_host && placement.grads == Tier::device)
    throw std::logic_error("unit " + unit.name + ": the host does not read gradients on the device");
  return {
      .name = unit.name,
      .numel = unit.numel,
      .trainable = unit.trainable,
      .shard_axes = shard_axes,
      .replicate_axes = input.mesh.used(policy.replicate_axes),
      .params_resident = !offloaded && (!sharded || !policy.shard_params || !policy.reshard_after_forward || in_place),
      .params_in_place = !offloaded && in_place,
      .storage_dtype = unit.storage_dtype,
      .param_dtype = policy.param_dtype,
      .reduce_dtype = policy.reduce_dtype,
      .int8 = unit.int8,
      .placement = placement,
      .update_on_host = input.updates_on_host && placement.optimizer != Tier::device};
}

BufferPlan plan_buffers(const ScheduleInput& input, ScheduleKind kind) {
  check(input, kind);
  BufferPlan plan;
  for (const UnitInput& unit : input.units) plan.units.push_back(scheduled_unit(input, unit));
  plan.executions = executions_of(input, kind);
  plan.first_contributor.assign(plan.units.size(), -1);
  plan.last_contributor = plan.first_contributor;
  plan.grad_slots.resize(plan.units.size());
  plan_params(input, plan, kind == ScheduleKind::train ? input.num_micro : 1);
  if (kind == ScheduleKind::train) {
    plan_grads(input, plan);
    plan_sums(input, plan);
  }
  plan_stages(input, plan, kind);
  return plan;
}

}  // namespace tessera::shard
