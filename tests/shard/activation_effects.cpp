// SPDX-License-Identifier: Apache-2.0
// What a module, fetch and store do to offloaded activations.

#include "tests/shard/machine.hpp"

namespace tessera::test {

using shard::StateKind;

/// A recompute may write its output again, and a backward uses up what is saved.
void Machine::begin_offloaded(Rank& r, const Instruction& in) {
  const shard::ActivationSlots& slots = s_.activation_slots(in);
  const Done here{step_, in.micro, in.module}, above{step_, in.micro, in.module + 1};
  const auto expect = [&](const Activations& buffer, const Done& content, const char* what) {
    if (buffer.content != content) wrong(rank_, in, what);
  };
  if (in.module > 0) {
    const Activations& input = staged(r, in, slots.input, StateKind::input);
    reads(input);
    expect(input, here, "its input is not there");
  }
  if (s_.modules[at(in.module)].saves && in.module >= first_backward(s_.modules)) {
    Activations& saved = staged(r, in, slots.saved, StateKind::saved);
    if (in.op != Op::forward) expect(saved, here, "what it has saved is not there");
    in.op == Op::recompute ? reads(saved) : writes(saved);
  }
  const int output = s_.output_slot(in);
  if (output < 0 || in.op == Op::backward) return;
  Activations& y = staged(r, in, output, StateKind::input);
  if (in.op == Op::recompute) expect(y, above, "runs over what is in the slot of its output");
  writes(y);
}

void Machine::complete_offloaded(Rank& r, const Instruction& in) {
  if (!s_.offloads_activations() || in.instance > 0 || in.op != Op::forward) return;
  if (const int output = s_.output_slot(in); output >= 0)
    r.staged[at(output)].content = {step_, in.micro, in.module + 1};
  if (const int saved = s_.activation_slots(in).saved; saved >= 0)
    r.staged[at(saved)].content = {step_, in.micro, in.module};
}

/// The modules of a reference model write to the first two slots of inputs.
void Machine::begin_reference(Rank& r, const Instruction& in) {
  (void)in;
  int inputs = 0;
  for (std::size_t k = 0; k < s_.slots.size() && inputs < 2; ++k) {
    if (s_.slots[k].kind != Slot::Kind::stage || s_.slots[k].state != StateKind::input) continue;
    writes(r.staged[k]);
    r.staged[k].content = {};
    ++inputs;
  }
}

void Machine::begin_move(Rank& r, const Instruction& in) {
  Activations &stage = staged(r, in, in.stage, in.state), &at_home = home(r, in);
  const bool stores = in.op == Op::store;
  if (stores && stage.content != Done{step_, in.micro, in.module}) wrong(rank_, in, "stores other activations");
  reads(stores ? stage : at_home);
  writes(stores ? at_home : stage);
}

void Machine::complete_move(Rank& r, const Instruction& in) {
  Activations &stage = r.staged[at(in.stage)], &at_home = home(r, in);
  (in.op == Op::store ? at_home : stage).content = (in.op == Op::store ? stage : at_home).content;
}

}  // namespace tessera::test
