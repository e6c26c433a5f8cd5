// SPDX-License-Identifier: Apache-2.0
// What an instruction reads and writes at its start, and what it leaves at its end.

#include <algorithm>

#include "tests/shard/machine.hpp"

namespace tessera::test {

using shard::ModuleUse;

void Machine::begin(Rank& r, const Instruction& in) {
  switch (in.op) {
    case Op::gather: return begin_gather(r, in);
    case Op::release:
      if (r.views[at(in.slot)].unit != in.unit) wrong(rank_, in, "releases what is not there");
      return writes(r.views[at(in.slot)]);
    case Op::forward:
    case Op::recompute:
    case Op::backward: return begin_module(r, in);
    case Op::reduce_scatter:
    case Op::all_reduce: return begin_reduce(r, in);
    case Op::norm: return begin_norm(r, in);
    case Op::update: return begin_update(r, in);
    case Op::fetch: return is_activation(in.state) ? begin_move(r, in) : begin_fetch(r, in);
    case Op::store: return is_activation(in.state) ? begin_move(r, in) : begin_store(r, in);
    case Op::exchange: return begin_exchange(r, in);
  }
}

void Machine::begin_gather(Rank& r, const Instruction& in) {
  if (!slot_fits(in.slot, in.unit, Slot::Kind::param)) wrong(rank_, in, "runs over its slot");
  View& view = r.views[at(in.slot)];
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (unit.params_resident ? view.unit != in.unit : view.unit >= 0) wrong(rank_, in, "its slot is not free");
  writes(view);
  if (unit.params_in_place) return;
  if (unit.params_offloaded()) {
    const Stage& stage = r.stages[at(in.stage)];
    reads(stage);
    if (stage.unit != in.unit || stage.version != version(in.unit, step_)) wrong(rank_, in, "reads another shard");
  } else if (!copies_last(unit)) {
    reads(r.masters[at(in.unit)]);
  }
  for (int q = 0; q < shards_of(in.unit); ++q) {
    if (copies_last(unit) && q == shard_of(rank_)) reads(memory(rank_, in.slot)[at(q)]);
    else writes(memory(rank_, in.slot)[at(q)]);
  }
}

void Machine::begin_module(Rank& r, const Instruction& in) {
  const ModuleUse& use = s_.use_of(in);
  for (const int unit : in.op == Op::backward ? use.backward_units : use.forward_units) {
    const auto& given = s_.reads[at(index_)];
    const auto found = std::find_if(given.begin(), given.end(), [&](const auto& p) { return p.first == unit; });
    if (found == given.end()) wrong(rank_, in, "is not given a unit");
    if (found->second < 0 || at(found->second) >= s_.slots.size()) wrong(rank_, in, "is given no slot");
    const View& view = r.views[at(found->second)];
    reads(view);
    if (view.unit != unit || !view.fresh)
      wrong(rank_, in, "reads " + s_.units[at(unit)].name + ", which is not gathered there");
    for (int q = 0; q < shards_of(unit); ++q) {
      const ParamMemory& part = memory(rank_, found->second)[at(q)];
      reads(part);
      if (part.unit != unit || part.version != version(unit, step_))
        wrong(rank_, in, "reads an old or foreign " + s_.units[at(unit)].name);
    }
  }
  if (in.instance > 0 && in.op != Op::forward) wrong(rank_, in, "saves nothing, and has no backward");
  if (is_last_stage(in)) in.instance > 0 ? reference_activations(r, in) : activations(r, in);
  begin_values(r, in);
  if (in.op != Op::backward) return;
  for (const int unit : use.grad_units) {
    const int slot = s_.grad_slot(unit, in.micro);
    if (!slot_fits(slot, unit, Slot::Kind::grad)) wrong(rank_, in, "runs over its gradient slot");
    writes(r.grads[at(slot)]);
  }
}

/// It shares the buffers of the model's activations, which hold nothing afterwards.
void Machine::reference_activations(Rank& r, const Instruction& in) {
  const Done here{step_, in.micro, in.module}, below{step_, in.micro, in.module - 1};
  if (in.module > 0 && (r.reference != below || r.reference_instance != in.instance)) wrong(rank_, in, "has no input");
  r.reference = here;
  r.reference_instance = in.instance;
  std::fill(r.output.begin(), r.output.end(), Done{});
  r.recomputed = r.backward = {};
  if (in.module + 1 == static_cast<int>(s_.modules_of(in.instance).size()))
    r.reference_outcomes[at(in.instance - 1)] = {step_, in.micro, 0};
}

void Machine::activations(Rank& r, const Instruction& in) {
  r.reference = {};
  const Done here{step_, in.micro, in.module}, below{step_, in.micro, in.module - 1},
      above{step_, in.micro, in.module + 1};
  const bool last = in.module + 1 == static_cast<int>(s_.modules.size()), again = s_.recomputes(in.module);
  if (in.module > 0 && r.output[at(in.module - 1)] != below) wrong(rank_, in, "has no input");
  if (in.op == Op::forward) {
    r.output[at(in.module)] = here;
    if (again) r.recomputed = {};
    else r.saved[at(in.module)] = here;
    if (last && !trains()) add_loss(r, in);
  } else if (in.op == Op::recompute) {
    if (!again || r.output[at(in.module)] != here) wrong(rank_, in, "computes again what has not been computed");
    r.recomputed = here;
  } else {
    if ((again ? r.recomputed : r.saved[at(in.module)]) != here) wrong(rank_, in, "has no saved activations");
    if (!last && r.backward != above) wrong(rank_, in, "has no gradient of its output");
    if (last && r.backward.step == step_ && r.backward.micro == in.micro) wrong(rank_, in, "comes twice");
    r.backward = here;
    if (last) add_loss(r, in);
  }
}

void Machine::add_loss(Rank& r, const Instruction& in) {
  for (const Done& outcome : r.reference_outcomes)
    if (outcome != Done{step_, in.micro, 0}) wrong(rank_, in, "has no outcome of a reference model");
  writes(r.loss);
  r.loss.count = r.loss.step == step_ ? r.loss.count + 1 : 1;
  r.loss.step = step_;
}

void Machine::begin_reduce(Rank& r, const Instruction& in) {
  Gradient& x = adds_from_slot(in) ? r.grads[at(in.slot)] : summed(r, in);
  if (in.sum >= 0 && !slot_fits(in.sum, in.unit, Slot::Kind::sum)) wrong(rank_, in, "runs over its sum slot");
  if (reads_gradient(in)) {
    if (!slot_fits(in.slot, in.unit, Slot::Kind::grad)) wrong(rank_, in, "runs over its slot");
    Gradient& slot = r.grads[at(in.slot)];
    if (slot.unit != in.unit || slot.step != step_ || slot.reduced || slot.writers > 0)
      wrong(rank_, in, "reads another gradient");
    if (&x != &slot || adds_from_slot(in)) reads(slot);
  } else if (x.unit != in.unit || x.step != step_ || x.over != 1 || x.writers > 0) {
    wrong(rank_, in, "follows no reduce_scatter");
  }
  if (!adds_from_slot(in)) writes(x);
  for (const int p : in.accumulation.inputs) {
    if (p != in.accumulation.target) writes(accumulators(r, in)[at(p)]);
  }
  if (!in.accumulation.inputs.empty()) writes(accumulators(r, in)[at(in.accumulation.target)]);
}

Gradient& Machine::reduced(Rank& r, const Instruction& in) {
  if (s_.units[at(in.unit)].num_accumulators > 0) return accumulators(r, in)[0];
  for (std::size_t k = 0; k < s_.slots.size(); ++k) {
    if (s_.slots[k].kind == Slot::Kind::grad && s_.slots[k].units.front() == in.unit) return r.grads[k];
  }
  wrong(rank_, in, "has no gradient");
}

void Machine::begin_norm(Rank& r, const Instruction& in) {
  reads(r.loss);
  if (r.loss.step != step_ || r.loss.count != s_.num_micro) wrong(rank_, in, "the loss is not complete");
  for (std::size_t u = 0; u < s_.units.size() && trains(); ++u) {
    if (r.normed[u] != full_[u]) wrong(rank_, in, "the norm of " + s_.units[u].name + " is not complete");
  }
  writes(r.norm);
}

void Machine::begin_update(Rank& r, const Instruction& in) {
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (!s_.updates_before_norm || !unit.update_on_host) {
    reads(r.norm);
    if (r.norm.step != step_) wrong(rank_, in, "there is no norm yet");
  }
  const bool fetched = unit.grads_offloaded() && !unit.update_reaches(unit.placement.grads);
  const Gradient& gradient = fetched                  ? r.stages[at(in.stage)].sums[0]
                             : unit.grads_offloaded() ? r.homes[at(in.unit)].sums[0]
                                                      : reduced(r, in);
  reads(gradient);
  if (gradient.unit != in.unit || gradient.step != step_ || gradient.sum != full_[at(in.unit)] || gradient.over != 2)
    wrong(rank_, in, "its gradient is not complete");
  if (unit.optimizer_offloaded()) begin_placed_update(r, in);
  if (!unit.params_offloaded() && !unit.update_on_host) begin_shard(r, in.unit);
}

void Machine::begin_shard(Rank& r, int unit) {
  writes(r.masters[at(unit)]);
  for (std::size_t k = 0; k < s_.slots.size(); ++k) {
    if (!resident_param(k) || s_.slots[k].units.front() != unit) continue;
    writes(memory(rank_, static_cast<int>(k))[at(interval_of(rank_, unit))]);
    writes(r.views[k]);
  }
}

void Machine::complete(Rank& r, const Instruction& in) {
  switch (in.op) {
    case Op::gather: return complete_gather(r, in);
    case Op::release: r.views[at(in.slot)] = emptied(r.views[at(in.slot)]); return;
    case Op::forward:
    case Op::recompute: return complete_values(r, in);
    case Op::backward: return complete_backward(r, in);
    case Op::reduce_scatter:
    case Op::all_reduce: return complete_reduce(r, in);
    case Op::norm:
      r.norm.step = step_;
      std::fill(r.normed.begin(), r.normed.end(), 0);
      return;
    case Op::update: return complete_update(r, in);
    case Op::fetch: return is_activation(in.state) ? complete_move(r, in) : complete_fetch(r, in);
    case Op::store: return is_activation(in.state) ? complete_move(r, in) : complete_store(r, in);
    case Op::exchange: return complete_exchange(r, in);
  }
}

void Machine::complete_gather(Rank& r, const Instruction& in) {
  View& view = r.views[at(in.slot)];
  view.unit = in.unit;
  view.fresh = true;
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (unit.params_in_place) return;
  for (int q = 0; q < shards_of(in.unit); ++q) {
    ParamMemory& part = memory(rank_, in.slot)[at(q)];
    if (unit.params_offloaded()) {  // every rank has checked its own shard
      part.unit = in.unit;
      part.version = version(in.unit, step_);
      continue;
    }
    if (copies_last(unit)) {
      const ParamMemory& owners = memory(first_of_group(rank_) + q, in.slot)[at(q)];
      if (q == shard_of(rank_)) continue;
      part.unit = owners.unit;
      part.version = owners.writers > 0 ? -1 : owners.version;
      continue;
    }
    const Master& master = ranks_[at(first_of_group(rank_) + q)].masters[at(in.unit)];
    part.unit = in.unit;
    part.version = master.writers > 0 ? -1 : master.version;
  }
}

void Machine::complete_backward(Rank& r, const Instruction& in) {
  complete_values(r, in);
  if (!is_last_stage(in)) return;
  for (const int unit : s_.modules[at(in.module)].grad_units) {
    Gradient& slot = r.grads[at(s_.grad_slot(unit, in.micro))];
    const bool adds = in.micro > 0 && s_.units[at(unit)].adds_in_slot;
    bool first = !adds;  // as in the executor: the first contributor overwrites
    for (std::size_t later = at(in.module) + 1; later < s_.modules.size(); ++later) {
      const auto& units = s_.modules[later].grad_units;
      if (std::find(units.begin(), units.end(), unit) != units.end()) first = false;
    }
    if (adds && slot.step != step_) wrong(rank_, in, "adds to an old gradient");
    if (first) {
      slot.unit = unit;
      slot.step = step_;
      slot.sum = 0;
      slot.over = 0;
      slot.reduced = false;
    }
    if (slot.unit != unit || slot.step != step_ || slot.reduced || (slot.sum & bit(in.micro, in.module)) != 0) {
      wrong(rank_, in, "adds to another gradient");
    }
    slot.sum |= bit(in.micro, in.module);
  }
}

void Machine::complete_reduce(Rank& r, const Instruction& in) {
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  Gradient added;
  Gradient& x = adds_from_slot(in) ? added : summed(r, in);
  std::uint64_t sum = reads_gradient(in) ? r.grads[at(in.slot)].sum : x.sum;
  const int over = in.op == Op::all_reduce || unit.replicate_axes.empty() ? 2 : 1;
  const auto set = [&](Gradient& gradient) {
    gradient.unit = in.unit;
    gradient.step = step_;
    gradient.sum = sum;
    gradient.over = over;
  };
  set(x);
  if (unit.num_accumulators == 0) x.reduced = true;
  for (const int p : in.accumulation.inputs) {
    const Gradient& accumulator = accumulators(r, in)[at(p)];
    if (accumulator.unit != in.unit || accumulator.step != step_ || (accumulator.sum & sum) != 0 ||
        accumulator.over != over)
      wrong(rank_, in, "accumulates an old gradient, one twice, or one of other ranks");
    sum |= accumulator.sum;
  }
  if (!in.accumulation.inputs.empty()) {
    x.unit = -1;
    set(accumulators(r, in)[at(in.accumulation.target)]);
  }
  if (!in.last_reduce) return;
  if (r.normed[at(in.unit)] != 0) wrong(rank_, in, "adds to the norm twice");
  r.normed[at(in.unit)] = over == 2 ? sum : 0;
}

void Machine::complete_update(Rank& r, const Instruction& in) {
  const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
  if (unit.optimizer_offloaded()) complete_placed_update(r, in);
  if (unit.params_offloaded() || unit.update_on_host) return;
  ++r.masters[at(in.unit)].version;
  complete_shard(r, in.unit);
}

void Machine::complete_shard(Rank& r, int unit) {
  for (std::size_t k = 0; k < s_.slots.size(); ++k) {
    if (!resident_param(k) || s_.slots[k].units.front() != unit) continue;
    memory(rank_, static_cast<int>(k))[at(interval_of(rank_, unit))].version = r.masters[at(unit)].version;
    r.views[k].fresh = shards_of(unit) == 1;
  }
}

}  // namespace tessera::test
