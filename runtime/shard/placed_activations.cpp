// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/placed_activations.hpp"

namespace tessera::shard {

PlacedActivations::PlacedActivations(const Schedule& schedule, UseOrder& order)
    : s_(schedule),
      order_(order),
      first_(first_backward(schedule.modules)),
      stages_(schedule.slots.size()),
      inputs_(schedule.modules.size()),
      saved_(schedule.modules.size()) {}

void PlacedActivations::take(Stage& stage, Content content, const char* what) {
  if (stage.needed)
    order_.fail(strfmt("takes the slot of %s m%d, which is not stored",
                       s_.modules[at(stage.content.module)].name.c_str(), stage.content.micro));
  order_.write(stage, what);
  stage.content = content;
  stage.needed = true;
}

PlacedActivations::Stage* PlacedActivations::with(int slot, Content content, const char* what) {
  Stage& stage = stages_[at(slot)];
  if (stage.content == content) return &stage;
  const Content& other = stage.content;
  order_.fail(strfmt("reads %s in slot %d, where %s%s is", what, slot,
                     other.module < 0 ? "nothing" : s_.modules[at(other.module)].name.c_str(),
                     other.module < 0 ? "" : strfmt(" m%d", other.micro).c_str()));
  return nullptr;
}

void PlacedActivations::run_reference() {
  int inputs = 0;
  for (std::size_t k = 0; k < s_.slots.size() && inputs < 2; ++k) {
    if (s_.slots[k].kind != Slot::Kind::stage || s_.slots[k].state != StateKind::input) continue;
    take(stages_[k], {}, "a slot of inputs");
    stages_[k].needed = false;
    ++inputs;
  }
}

void PlacedActivations::run(const Instruction& in) {
  if (!s_.offloads_activations()) return;
  if (in.instance > 0) return run_reference();
  if (in.op == Op::forward) forward(in);
  else if (in.op == Op::recompute) recompute(in);
  else backward(in);
}

void PlacedActivations::forward(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  Stage* const input = slots.input >= 0 ? with(slots.input, content_of(in, in.module), "its input") : nullptr;
  if (input != nullptr) order_.read(*input, "its input");
  if (const int output = s_.output_slot(in); output >= 0)
    take(stages_[at(output)], content_of(in, in.module + 1), "the slot of its output");
  if (slots.saved >= 0) take(stages_[at(slots.saved)], content_of(in, in.module), "the slot of what it saves");
  if (input != nullptr && in.module < first_) input->needed = false;  // not before: the output is not in its place
}

void PlacedActivations::recompute(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  for (const auto& [slot, what] : {std::pair{slots.input, "its input"}, std::pair{slots.saved, "what it has saved"}})
    if (slot >= 0)
      if (Stage* stage = with(slot, content_of(in, in.module), what)) order_.read(*stage, what);
  if (const int output = s_.output_slot(in); output >= 0)
    if (Stage* stage = with(output, content_of(in, in.module + 1), "its output")) order_.write(*stage, "its output");
}

void PlacedActivations::backward(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  if (slots.input >= 0)
    if (Stage* input = with(slots.input, content_of(in, in.module), "its input")) {
      order_.read(*input, "its input");
      input->needed = false;
    }
  if (slots.saved >= 0)
    if (Stage* saved = with(slots.saved, content_of(in, in.module), "what it has saved")) {
      order_.write(*saved, "what it has saved");
      saved->needed = false;
      saved->content = {};
    }
}

void PlacedActivations::fetch(const Instruction& in) {
  Home& home = homes(in.state)[at(in.module)];
  if (home.content != content_of(in, in.module)) order_.fail("fetches what has not been stored in this micro-batch");
  order_.read(home, "the activations that it fetches");
  take(stages_[at(in.stage)], content_of(in, in.module), "its staging slot");
}

void PlacedActivations::store(const Instruction& in) {
  Stage* const stage = with(in.stage, content_of(in, in.module), "the activations that it stores");
  if (stage == nullptr) return;
  order_.read(*stage, "its staging slot");
  Home& home = homes(in.state)[at(in.module)];
  order_.write(home, "the activations that it stores");
  home.content = stage->content;
  stage->needed = false;
}

void PlacedActivations::end_of_step() {
  for (const Stage& stage : stages_)
    if (stage.needed)
      order_.violations.push_back(
          {-1, "end of the step: a staging slot has " + s_.modules[at(stage.content.module)].name});
}

}  // namespace tessera::shard
