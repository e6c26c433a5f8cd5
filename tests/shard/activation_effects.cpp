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
  if (in.module > 0) {
    expect(r, in, slots.input, in.module, input_of(in));
    reads(values(r, in, slots.input, input_of(in)));
  }
  if (saves(in) && use.saves) {
    if (in.op != Op::forward) expect(r, in, slots.saved, in.module, saved_value);
    Activations& saved = values(r, in, slots.saved, saved_value);
    in.op == Op::recompute ? reads(saved) : writes(saved);
  }
  if (saves(in) && use.saves_again) {
    if (in.op == Op::backward) expect(r, in, slots.recomputed, in.module, recomputed_value);
    writes(values(r, in, slots.recomputed, recomputed_value));
  }
  const bool last = in.module + 1 == static_cast<int>(s_.modules_of(in.instance).size());
  if (in.op == Op::backward) {
    const int above = s_.output_gradient_slot(in);
    if (!last) expect(r, in, above, in.module + 1, gradient_value);
    if (!last) writes(values(r, in, above, gradient_value));
    if (in.module > first_backward(s_.modules) && (last || slots.gradient != above))
      writes(values(r, in, slots.gradient, gradient_value));
  } else if (!last) {
    const int output = s_.output_slot(in);
    if (in.op == Op::recompute) expect(r, in, output, in.module + 1, input_of(in));
    writes(values(r, in, output, input_of(in)));
  }
}

void Machine::complete_values(Rank& r, const Instruction& in) {
  const shard::ActivationSlots& slots = s_.activation_slots(in);
  const ModuleUse& use = s_.use_of(in);
  if (in.op == Op::forward && in.module + 1 < static_cast<int>(s_.modules_of(in.instance).size()))
    leave(r, in, s_.output_slot(in), in.module + 1, input_of(in));
  if (in.op == Op::forward && saves(in) && use.saves) leave(r, in, slots.saved, in.module, saved_value);
  if (in.op != Op::backward && saves(in) && use.saves_again)
    leave(r, in, slots.recomputed, in.module, recomputed_value);
  if (in.op == Op::backward && in.module > first_backward(s_.modules))
    leave(r, in, slots.gradient, in.module, gradient_value);
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
