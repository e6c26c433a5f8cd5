// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/placed_activations.hpp"

#include <tuple>
#include <utility>

namespace tessera::shard {

PlacedActivations::PlacedActivations(const Schedule& schedule, UseOrder& order)
    : s_(schedule),
      order_(order),
      first_(schedule.trains() ? first_backward(schedule.modules) : static_cast<int>(schedule.modules.size())),
      stages_(schedule.slots.size()),
      inputs_(schedule.modules.size()),
      saved_(schedule.modules.size()) {}

PlacedActivations::Content PlacedActivations::content_of(const Instruction& in, Name name, int module) const {
  const std::vector<ModuleUse>& modules = s_.modules_of(in.instance);
  while (name == Name::input && module > 1 && modules[at(module - 1)].in_place) --module;
  return {name, module, in.micro, order_.step, in.instance};
}

const std::string& PlacedActivations::module_name(const Content& content) const {
  return s_.modules_of(content.instance)[at(content.module)].name;
}

void PlacedActivations::take(Stage& stage, Content content, const char* what) {
  if (stage.needed)
    order_.fail(strfmt("takes the slot of %s m%d, which is not stored", module_name(stage.content).c_str(),
                       stage.content.micro));
  order_.write(stage, what);
  stage.content = content;
  stage.needed = true;
}

PlacedActivations::Stage* PlacedActivations::with(int slot, Content content, const char* what) {
  if (slot < 0) return nullptr;
  Stage& stage = stages_[at(slot)];
  if (stage.content == content) return &stage;
  const Content& other = stage.content;
  order_.fail(strfmt("reads %s in slot %d, where %s%s is", what, slot,
                     other.module < 0 ? "nothing" : module_name(other).c_str(),
                     other.module < 0 ? "" : strfmt(" m%d", other.micro).c_str()));
  return nullptr;
}

void PlacedActivations::run(const Instruction& in) {
  if (in.op == Op::forward) forward(in);
  else if (in.op == Op::recompute) recompute(in);
  else backward(in);
}

void PlacedActivations::forward(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  Stage* const input = with(slots.input, content_of(in, Name::input, in.module), "its input");
  if (input != nullptr) order_.read(*input, "its input");
  if (const int output = s_.output_slot(in); output >= 0) {
    const Content content = content_of(in, Name::input, in.module + 1);
    if (!s_.use_of(in).in_place) take(stages_[at(output)], content, "the slot of its output");
    else if (Stage* stage = with(output, content, "its output")) order_.write(*stage, "its output");
  }
  if (in.module < first_ || in.instance > 0) {  // not before: the output is not in its place
    if (input != nullptr && (!s_.use_of(in).in_place || s_.output_slot(in) < 0)) input->needed = false;
    return;
  }
  if (slots.saved >= 0)
    take(stages_[at(slots.saved)], content_of(in, Name::saved, in.module), "the slot of what it saves");
  if (slots.recomputed >= 0) {
    Stage& stage = stages_[at(slots.recomputed)];
    take(stage, content_of(in, Name::recomputed, in.module), "the slot of what it saves");
    stage.needed = !s_.recomputes(in.module);
  }
}

void PlacedActivations::recompute(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  for (const auto& [slot, name, what] :
       {std::tuple{slots.input, Name::input, "its input"}, std::tuple{slots.saved, Name::saved, "what it has saved"}})
    if (Stage* stage = with(slot, content_of(in, name, in.module), what)) order_.read(*stage, what);
  if (slots.recomputed >= 0)
    take(stages_[at(slots.recomputed)], content_of(in, Name::recomputed, in.module), "the slot of what it saves");
  if (Stage* stage = with(s_.output_slot(in), content_of(in, Name::input, in.module + 1), "its output"))
    order_.write(*stage, "its output");
}

void PlacedActivations::backward(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  if (Stage* input = with(slots.input, content_of(in, Name::input, in.module), "its input")) {
    order_.read(*input, "its input");
    input->needed = false;
  }
  for (const auto& [slot, name] : {std::pair{slots.saved, Name::saved}, std::pair{slots.recomputed, Name::recomputed}})
    if (Stage* saved = with(slot, content_of(in, name, in.module), "what it has saved")) {
      order_.write(*saved, "what it has saved");
      saved->needed = false;
      saved->content = {};
    }
  const int of_output = s_.output_gradient_slot(in);
  if (Stage* stage = with(of_output, content_of(in, Name::gradient, in.module + 1), "the gradient of its output")) {
    order_.write(*stage, "the gradient of its output");
    stage->needed = false;
    stage->content = {};
  }
  if (slots.gradient >= 0)
    take(stages_[at(slots.gradient)], content_of(in, Name::gradient, in.module), "the gradient of its input");
}

void PlacedActivations::fetch(const Instruction& in) {
  const Content content = content_of(in, name_of(in.state), in.module);
  Home& home = homes(in.state)[at(in.module)];
  if (home.content != content) order_.fail("fetches what has not been stored in this micro-batch");
  order_.read(home, "the activations that it fetches");
  take(stages_[at(in.stage)], content, "its staging slot");
}

void PlacedActivations::store(const Instruction& in) {
  Stage* const stage = with(in.stage, content_of(in, name_of(in.state), in.module), "the activations that it stores");
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
      order_.violations.push_back({-1, "end of the step: a slot has what " + module_name(stage.content) + " needs"});
}

}  // namespace tessera::shard
