// SPDX-License-Identifier: Apache-2.0
// What a module, fetch and store do to activations.

#include "tests/shard/machine.hpp"

namespace tessera::test {

using shard::ModuleUse;
using shard::StateKind;

/// The buffer of a value: its slot, which must have been made for it.
Activations& Machine::values(Rank& r, const Instruction& in, int slot, int name) {
  if (slot < 0 || at(slot) >= s_.slots.size()) wrong(rank_, in, "has no slot for an activation");
  const Slot& of = s_.slots[at(slot)];
  if (name >= first_stage_value) {
    const int number = (name - first_stage_value) / 2;
    const bool kept = name % 2 == 0 && s_.use_of(in).values[at(number)].kept && saves(in) && !s_.recomputes(in.module);
    const SlotId id{name % 2 == 0 ? SlotUse::value : SlotUse::value_gradient, kept ? in.module : -1, number};
    if (of.kind != Slot::Kind::activation || of.id != id) wrong(rank_, in, "runs over the slot of a value");
    return r.staged[at(slot)];
  }
  const bool input = name == input_value || name >= reference_value;
  const SlotUse use = input                      ? SlotUse::output
                      : name == saved_value      ? SlotUse::saved
                      : name == recomputed_value ? SlotUse::recomputed
                                                 : SlotUse::output_gradient;
  const bool staged = s_.offloads_activations && of.kind == Slot::Kind::stage &&
                      of.state == (input ? StateKind::input : StateKind::saved) && (input || name == saved_value);
  const bool own =
      of.kind == Slot::Kind::activation && of.id.use == use && (name != saved_value || of.id.of == in.module);
  if (!staged && !own) wrong(rank_, in, "runs over the slot of an activation");
  return r.staged[at(slot)];
}

void Machine::expect(Rank& r, const Instruction& in, int slot, int module, int name) {
  const Activations& buffer = values(r, in, slot, name);
  if (buffer.content != Done{step_, in.micro, module} || buffer.name != name)
    wrong(rank_, in, "an activation that it uses is not there");
}

void Machine::leave(Rank& r, const Instruction& in, int slot, int module, int name) {
  Activations& buffer = values(r, in, slot, name);
  buffer.content = {step_, in.micro, module};
  buffer.name = name;
}

/// A recompute may write its output again, and a backward uses up what is saved.
void Machine::begin_values(Rank& r, const Instruction& in) {
  const shard::ActivationSlots& slots = s_.activation_slots(in);
  const ModuleUse& use = s_.use_of(in);
  begin_stage_values(r, in);
  if (in.module > 0) {
    expect(r, in, slots.input, in.module, input_of(in));
    reads(values(r, in, slots.input, input_of(in)));
  }
  if (saves(in) && use.saves) {
    if (in.op != Op::forward || !is_first_stage(in)) expect(r, in, slots.saved, in.module, saved_value);
    Activations& saved = values(r, in, slots.saved, saved_value);
    in.op == Op::recompute ? reads(saved) : writes(saved);
  }
  if (saves(in) && use.saves_again) {
    if (in.op == Op::backward || !is_first_stage(in)) expect(r, in, slots.recomputed, in.module, recomputed_value);
    writes(values(r, in, slots.recomputed, recomputed_value));
  }
  const bool last = in.module + 1 == static_cast<int>(s_.modules_of(in.instance).size());
  if (in.op == Op::backward) {
    const int above = s_.output_gradient_slot(in);
    if (!last) expect(r, in, above, in.module + 1, gradient_value);
    if (!last) writes(values(r, in, above, gradient_value));
    if (in.module > first_backward(s_.modules) && is_last_stage(in) && (last || slots.gradient != above))
      writes(values(r, in, slots.gradient, gradient_value));
  } else if (!last && is_last_stage(in)) {
    const int output = s_.output_slot(in);
    if (in.op == Op::recompute) expect(r, in, output, in.module + 1, input_of(in));
    writes(values(r, in, output, input_of(in)));
  }
}

void Machine::complete_values(Rank& r, const Instruction& in) {
  const shard::ActivationSlots& slots = s_.activation_slots(in);
  const ModuleUse& use = s_.use_of(in);
  if (!use.stages.empty()) {
    const ModuleStage& stage = use.stages[at(in.part)];
    for (const int v : stage.writes)
      if (in.op != Op::backward) leave(r, in, slots.values[at(v)], in.module, first_stage_value + 2 * v);
    for (const int v : stage.reads)
      if (in.op == Op::backward && !use.values[at(v)].constant)
        leave(r, in, slots.value_gradients[at(v)], in.module, first_stage_value + 2 * v + 1);
  }
  if (in.op == Op::forward && is_last_stage(in) && in.module + 1 < static_cast<int>(s_.modules_of(in.instance).size()))
    leave(r, in, s_.output_slot(in), in.module + 1, input_of(in));
  if (in.op == Op::forward && saves(in) && use.saves) leave(r, in, slots.saved, in.module, saved_value);
  if (in.op != Op::backward && saves(in) && use.saves_again)
    leave(r, in, slots.recomputed, in.module, recomputed_value);
  if (in.op == Op::backward && is_last_stage(in) && in.module > first_backward(s_.modules))
    leave(r, in, slots.gradient, in.module, gradient_value);
}

void Machine::begin_stage_values(Rank& r, const Instruction& in) {
  const ModuleUse& use = s_.use_of(in);
  if (use.stages.empty()) return;
  const shard::ActivationSlots& slots = s_.activation_slots(in);
  const ModuleStage& stage = use.stages[at(in.part)];
  const bool back = in.op == Op::backward;
  const auto reads_value = [&](int slot, int name) {
    expect(r, in, slot, in.module, name);
    reads(values(r, in, slot, name));
  };
  const auto passes = [&](int v) { return !back || !use.values[at(v)].constant; };
  for (const int v : back ? stage.writes : stage.reads)
    if (passes(v))
      reads_value((back ? slots.value_gradients : slots.values)[at(v)], first_stage_value + 2 * v + (back ? 1 : 0));
  for (const int v : back ? stage.reads : stage.writes) {
    if (!passes(v)) continue;
    const int name = first_stage_value + 2 * v + (back ? 1 : 0);
    writes(values(r, in, (back ? slots.value_gradients : slots.values)[at(v)], name));
  }
  for (const auto* list : {&stage.reads, &stage.writes})
    for (const int v : *list)
      if (back && use.values[at(v)].kept) reads_value(slots.values[at(v)], first_stage_value + 2 * v);
}

std::pair<int, int> Machine::exchanged(const Instruction& in) const {
  const shard::ModuleExchange& of = s_.exchange_of(in);
  const int from = first_stage_value + 2 * of.from, to = first_stage_value + 2 * of.to;
  return in.pass == Op::backward ? std::pair{to + 1, from + 1} : std::pair{from, to};
}

/// Every rank checks its own part; the exchange ends when all have begun, and none changes its part before its own end.
void Machine::begin_exchange(Rank& r, const Instruction& in) {
  const shard::ActivationSlots& of_module = s_.activation_slots(in);
  const std::size_t n = s_.use_of(in).values.size();
  const bool back = in.pass == Op::backward;
  if (at(in.part) >= s_.use_of(in).exchanges.size() ||
      (back ? of_module.value_gradients : of_module.values).size() != n)
    wrong(rank_, in, "is no exchange");
  const Schedule::ExchangeSlots slots = s_.exchange_slots(in);
  const auto [from, to] = exchanged(in);
  expect(r, in, slots.from, in.module, from);
  reads(values(r, in, slots.from, from));
  writes(values(r, in, slots.to, to));
}

void Machine::complete_exchange(Rank& r, const Instruction& in) {
  leave(r, in, s_.exchange_slots(in).to, in.module, exchanged(in).second);
}

void Machine::begin_move(Rank& r, const Instruction& in) {
  const int name = in.state == StateKind::input ? input_value : saved_value;
  Activations &stage = values(r, in, in.stage, name), &at_home = home(r, in);
  if (in.op == Op::store) expect(r, in, in.stage, in.module, name);
  reads(in.op == Op::store ? stage : at_home);
  writes(in.op == Op::store ? at_home : stage);
}

void Machine::complete_move(Rank& r, const Instruction& in) {
  Activations &stage = r.staged[at(in.stage)], &at_home = home(r, in);
  Activations &from = in.op == Op::store ? stage : at_home, &to = in.op == Op::store ? at_home : stage;
  to.content = from.content;
  to.name = from.name;
}

}  // namespace tessera::test
