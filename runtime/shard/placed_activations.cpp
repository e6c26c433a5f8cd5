// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/placed_activations.hpp"

#include <ranges>

namespace tessera::shard {

PlacedActivations::PlacedActivations(const Schedule& schedule, UseOrder& order)
    : s_(schedule),
      order_(order),
      first_(schedule.trains() ? first_backward(schedule.modules) : static_cast<int>(schedule.modules.size())),
      stages_(schedule.slots.size()),
      inputs_(schedule.modules.size()),
      saved_(schedule.modules.size()) {}

PlacedActivations::Content PlacedActivations::content_of(const Instruction& in, int name, int module) const {
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

/// The first and the last that runs: backward begins with the last one.
bool PlacedActivations::first_stage(const Instruction& in) const {
  return in.part == (in.op == Op::backward ? s_.use_of(in).num_stages() - 1 : 0);
}
bool PlacedActivations::last_stage(const Instruction& in) const {
  return in.part == (in.op == Op::backward ? 0 : s_.use_of(in).num_stages() - 1);
}

void PlacedActivations::read(int slot, Content content, const char* what) {
  if (Stage* stage = with(slot, content, what)) order_.read(*stage, what);
}

void PlacedActivations::write(int slot, Content content, const char* what) {
  order_.write(stages_[at(slot)], what);
  stages_[at(slot)].content = content;
}

void PlacedActivations::save(const Instruction& in, int slot, Name name) {
  const Content content = content_of(in, name, in.module);
  if (slot < 0) return;
  if (first_stage(in)) take(stages_[at(slot)], content, "the slot of what it saves");
  else if (Stage* stage = with(slot, content, "what it saves")) order_.write(*stage, "what it saves");
}

void PlacedActivations::run(const Instruction& in) {
  pass_values(in);
  if (in.op == Op::forward) forward(in);
  else if (in.op == Op::recompute) recompute(in);
  else backward(in);
}

void PlacedActivations::pass_values(const Instruction& in) {
  const ModuleUse& use = s_.use_of(in);
  if (use.stages.empty()) return;
  const ActivationSlots& slots = s_.activation_slots(in);
  const ModuleStage& stage = use.stages[at(in.part)];
  const auto value = [&](int v) { return content_of(in, first_value + 2 * v, in.module); };
  const auto gradient_of = [&](int v) { return content_of(in, first_value + 2 * v + 1, in.module); };
  if (in.op != Op::backward) {
    for (const int v : stage.reads) read(slots.values[at(v)], value(v), "a value that it reads");
    for (const int v : stage.writes) write(slots.values[at(v)], value(v), "a value that it writes");
    return;
  }
  for (const auto* values : {&stage.reads, &stage.writes})
    for (const int v : *values)
      if (use.values[at(v)].kept) read(slots.values[at(v)], value(v), "a value that it reads");
  const auto differs = [&](int v) { return !use.values[at(v)].constant; };
  for (const int v : stage.writes | std::views::filter(differs))
    read(slots.value_gradients[at(v)], gradient_of(v), "a gradient that it reads");
  for (const int v : stage.reads | std::views::filter(differs))
    write(slots.value_gradients[at(v)], gradient_of(v), "a gradient that it writes");
}

void PlacedActivations::exchange(const Instruction& in) {
  const ModuleExchange& of = s_.exchange_of(in);
  const Schedule::ExchangeSlots slots = s_.exchange_slots(in);
  const bool back = in.pass == Op::backward;
  const auto name = [&](int v) { return first_value + 2 * v + (back ? 1 : 0); };
  read(slots.from, content_of(in, name(back ? of.to : of.from), in.module), "what it exchanges");
  write(slots.to, content_of(in, name(back ? of.from : of.to), in.module), "the slot of its result");
}

void PlacedActivations::forward(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  Stage* const x = with(slots.input, content_of(in, input, in.module), "its input");
  if (x != nullptr) order_.read(*x, "its input");
  if (const int output = s_.output_slot(in); output >= 0) {  // which any stage may write
    const Content content = content_of(in, input, in.module + 1);
    if (first_stage(in)) take(stages_[at(output)], content, "the slot of its output");
    else if (Stage* stage = with(output, content, "its output")) order_.write(*stage, "its output");
  }
  if (in.module < first_ || in.instance > 0) {  // not before: the output is not in its place
    if (x != nullptr && last_stage(in)) x->needed = false;
    return;
  }
  save(in, slots.saved, saved);
  save(in, slots.recomputed, recomputed);
  if (slots.recomputed >= 0) stages_[at(slots.recomputed)].needed = !s_.recomputes(in.module);
}

void PlacedActivations::recompute(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  read(slots.input, content_of(in, input, in.module), "its input");
  read(slots.saved, content_of(in, saved, in.module), "what it has saved");
  save(in, slots.recomputed, recomputed);
  if (!last_stage(in)) return;
  if (Stage* stage = with(s_.output_slot(in), content_of(in, input, in.module + 1), "its output"))
    order_.write(*stage, "its output");
}

void PlacedActivations::backward(const Instruction& in) {
  const ActivationSlots& slots = s_.activation_slots(in);
  const bool last = last_stage(in);
  if (Stage* x = with(slots.input, content_of(in, input, in.module), "its input")) {
    order_.read(*x, "its input");
    if (last) x->needed = false;
  }
  const auto use_up = [&](int slot, Content content, const char* what) {
    Stage* const stage = with(slot, content, what);
    if (stage == nullptr) return;
    order_.write(*stage, what);
    if (!last) return;
    stage->needed = false;
    stage->content = {};
  };
  use_up(slots.saved, content_of(in, saved, in.module), "what it has saved");
  use_up(slots.recomputed, content_of(in, recomputed, in.module), "what it has saved");
  use_up(s_.output_gradient_slot(in), content_of(in, gradient, in.module + 1), "the gradient of its output");
  if (slots.gradient >= 0 && last)
    take(stages_[at(slots.gradient)], content_of(in, gradient, in.module), "the gradient of its input");
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
