// SPDX-License-Identifier: Apache-2.0
#pragma once
// The builder's part for offloaded activations: which staging slots a module's input and saved activations are in, and
// when they are stored and fetched.

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/instruction_list.hpp"

namespace tessera::shard {

/// Staging slots of one kind, which the modules of a micro-batch take in turn.
class ActivationRing {
 public:
  /// `users`: the modules that take a slot, ascending.
  ActivationRing(StateKind kind, std::vector<int> slots, std::vector<int> users, int num_modules)
      : kind_(kind),
        slots_(std::move(slots)),
        users_(std::move(users)),
        freed_(slots_.size(), -1),
        held_(slots_.size(), false),
        slot_of_(at(num_modules), -1),
        ready_(at(num_modules), -1) {}

  [[nodiscard]] StateKind kind() const { return kind_; }
  [[nodiscard]] bool uses(int module) const { return std::ranges::binary_search(users_, module); }
  /// The module's slot as an index into Schedule::slots; -1: none now.
  [[nodiscard]] int slot_of(int module) const {
    const int k = slot_of_[at(module)];
    return k < 0 ? -1 : slots_[at(k)];
  }
  /// The instruction that the module's content is there after: its fetch, or none.
  [[nodiscard]] int ready_of(int module) const { return ready_[at(module)]; }
  /// Whether forward's content leaves the slot: a later module of the same forward takes it.
  [[nodiscard]] bool leaves(int module) const {
    const auto later = users_.end() - std::ranges::upper_bound(users_, module);
    return later >= static_cast<std::ptrdiff_t>(slots_.size());
  }
  [[nodiscard]] bool has_free() const { return std::ranges::find(held_, false) != held_.end(); }
  /// Gives the module the slot that was freed longest ago. Returns the instruction that freed it; -1: none.
  int take(int module) {
    int best = -1;
    for (int k = 0; k < static_cast<int>(slots_.size()); ++k)
      if (!held_[at(k)] && (best < 0 || freed_[at(k)] < freed_[at(best)])) best = k;
    TESSERA_ASSERT(best >= 0, "no slot for the %s of module %d", name_of(kind_), module);
    held_[at(best)] = true;
    slot_of_[at(module)] = best;
    ready_[at(module)] = -1;
    return freed_[at(best)];
  }
  void fetched(int module, int fetch) { ready_[at(module)] = fetch; }
  /// `last` is the last instruction that uses the module's slot.
  void free(int module, int last) {
    const int k = std::exchange(slot_of_[at(module)], -1);
    if (k < 0) return;
    freed_[at(k)] = last;
    held_[at(k)] = false;
  }
  /// Modules whose content is stored and not fetched yet, with the store; the next one to fetch last.
  std::vector<std::pair<int, int>> offloaded;

 private:
  StateKind kind_;
  std::vector<int> slots_, users_, freed_;  // freed_: by slot of the ring
  std::vector<bool> held_;
  std::vector<int> slot_of_, ready_;  // by module
};

/// With ShardPolicy::activations on the device it does nothing. place_activations has filled the tables.
class ActivationStages {
 public:
  ActivationStages(const ScheduleInput& input, const BufferPlan& plan, Schedule& schedule, InstructionList& list)
      : s_(schedule),
        list_(list),
        first_(first_backward(input.modules)),
        enabled_(input.policy.activations != Tier::device),
        input_(StateKind::input, stages(plan, StateKind::input), modules_from(1), num_modules()),
        saved_(StateKind::saved, stages(plan, StateKind::saved), modules_that_save(), num_modules()) {}

  /// Before the forward of a module of the model itself: takes slots for its output, and for what it saves. Returns
  /// what it must wait for.
  std::vector<int> begin_forward(int module, int micro) {
    if (!enabled_) return {};
    std::vector<int> wants;
    if (module + 1 < num_modules()) {
      wants.push_back(input_.take(module + 1));
      slots(s_.forward_slots, module + 1, micro).input = input_.slot_of(module + 1);
    }
    if (!saved_.uses(module)) return wants;
    wants.push_back(saved_.take(module));
    slots(s_.forward_slots, module, micro).saved = saved_.slot_of(module);
    return wants;
  }
  /// After it: stores what leaves its slot before its backward.
  void end_forward(int module, int micro, int forward) {
    if (!enabled_) return;
    for (ActivationRing* ring : {&input_, &saved_}) {
      if (!ring->uses(module)) continue;
      if (module < first_) ring->free(module, forward);
      else if (s_.modules[at(module)].offloads && ring->leaves(module)) store(*ring, module, micro, forward);
    }
  }
  /// Before recompute and backward of a module: fetches what there is a slot for, the module's own included. Returns
  /// what they must wait for.
  std::vector<int> begin_backward(int module, int micro) {
    if (!enabled_) return {};
    std::vector<int> wants;
    for (ActivationRing* ring : {&input_, &saved_}) {
      while (!ring->offloaded.empty() && ring->has_free()) fetch(*ring, micro);
      if (ring->uses(module)) wants.push_back(ring->ready_of(module));
    }
    ActivationSlots& used = slots(s_.backward_slots, module, micro);
    if (input_.uses(module)) used.input = input_.slot_of(module);
    if (saved_.uses(module)) used.saved = saved_.slot_of(module);
    return wants;
  }
  /// After them. A recompute of the module before this one has the input of this one as its output.
  void end_backward(int module, int backward) {
    if (!enabled_) return;
    saved_.free(module, backward);
    if (module + 1 < num_modules()) input_.free(module + 1, backward);
    if (module == first_ || !s_.recomputes(module - 1)) input_.free(module, backward);
  }

 private:
  [[nodiscard]] int num_modules() const { return static_cast<int>(s_.modules.size()); }
  [[nodiscard]] ActivationSlots& slots(std::vector<ActivationSlots>& table, int module, int micro) const {
    return table[at(micro) * s_.modules.size() + at(module)];
  }
  static std::vector<int> stages(const BufferPlan& plan, StateKind kind) {
    return plan.stage_slots[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::vector<int> modules_from(int first) const {
    std::vector<int> modules;
    for (int m = first; m < num_modules(); ++m) modules.push_back(m);
    return modules;
  }
  [[nodiscard]] std::vector<int> modules_that_save() const {
    std::vector<int> modules = modules_from(first_);
    std::erase_if(modules, [&](int m) { return !s_.modules[at(m)].saves || !s_.modules[at(m)].offloads; });
    return modules;
  }
  static Instruction moving(Op op, StreamId stream, StateKind kind, int module, int micro) {
    Instruction in{.op = op, .stream = stream, .module = module, .micro = micro};
    in.state = kind;
    return in;
  }
  void store(ActivationRing& ring, int module, int micro, int writer) {
    Instruction in = moving(Op::store, StreamId::store, ring.kind(), module, micro);
    in.stage = ring.slot_of(module);
    const int index = list_.add(std::move(in), {writer});
    ring.free(module, index);
    ring.offloaded.emplace_back(module, index);
  }
  void fetch(ActivationRing& ring, int micro) {
    const auto [module, stored] = ring.offloaded.back();
    ring.offloaded.pop_back();
    const int freed = ring.take(module);
    Instruction in = moving(Op::fetch, StreamId::fetch, ring.kind(), module, micro);
    in.stage = ring.slot_of(module);
    ring.fetched(module, list_.add(std::move(in), {freed, stored}));
  }

  Schedule& s_;
  InstructionList& list_;
  int first_;
  bool enabled_;
  ActivationRing input_, saved_;
};

}  // namespace tessera::shard
