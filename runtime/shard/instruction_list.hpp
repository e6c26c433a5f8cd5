// SPDX-License-Identifier: Apache-2.0
#pragma once
// Appends instructions to a schedule: the dependencies between streams, and the staging slots.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/buffer_plan.hpp"

namespace tessera::shard {

/// Keeps track of what is known to have run before each instruction on this rank, and leaves out dependencies that
/// follow from others.
class InstructionList {
 public:
  explicit InstructionList(Schedule& schedule) : s_(schedule) { last_.fill(-1); }

  /// Appends an instruction; `wants` are instructions that must have run (-1: none). Returns its index.
  int add(Instruction in, std::vector<int> wants, std::vector<std::pair<int, int>> reads = {}) {
    const int index = static_cast<int>(s_.list.size());
    const auto stream = static_cast<std::size_t>(in.stream);
    Known known;
    known.fill(-1);
    if (last_[stream] >= 0) known = known_[at(last_[stream])];
    std::sort(wants.begin(), wants.end(), std::greater<>());
    for (const int w : wants) {
      if (w < 0 || known[static_cast<std::size_t>(s_.list[at(w)].stream)] >= w) continue;
      in.after.push_back(w);
      for (std::size_t k = 0; k < known.size(); ++k) known[k] = std::max(known[k], known_[at(w)][k]);
    }
    std::reverse(in.after.begin(), in.after.end());
    known[stream] = index;
    known_.push_back(known);
    last_[stream] = index;
    s_.list.push_back(std::move(in));
    s_.reads.push_back(std::move(reads));
    return index;
  }

 private:
  using Known = std::array<int, num_streams>;  // by stream: the latest instruction that has run
  Schedule& s_;
  std::vector<Known> known_;
  Known last_{};
};

/// Appends the stages of a forward, recompute or backward, the first after `wants`, and the exchanges between them. A
/// stage waits for the exchanges of what it reads. Returns the last stage.
inline int add_stages(InstructionList& list, const ModuleUse& use, const Instruction& of, std::vector<int> wants,
                      const std::vector<std::pair<int, int>>& reads) {
  const bool backward = of.op == Op::backward;
  std::vector<int> exchanged(use.values.size(), -1);  // by value: the exchange that has written it, or its gradient
  int last = -1;
  for (const Instruction& in : stages_of(use, of)) {
    if (in.op == Op::exchange) {
      const ModuleExchange& exchange = use.exchanges[at(in.part)];
      const int from = backward ? exchange.to : exchange.from, to = backward ? exchange.from : exchange.to;
      exchanged[at(to)] = list.add(in, {last, exchanged[at(from)]});
      continue;
    }
    const ModuleStage none, &stage = use.stages.empty() ? none : use.stages[at(in.part)];
    for (const int value : backward ? stage.writes : stage.reads) wants.push_back(exchanged[at(value)]);
    last = list.add(in, std::move(wants), reads);
    wants.clear();
  }
  return last;
}

/// Makes a unit one of those that use a slot.
inline void add_user(Slot& slot, int unit) {
  const auto position = std::ranges::lower_bound(slot.units, unit);
  if (position == slot.units.end() || *position != unit) slot.units.insert(position, unit);
}

/// The staging slots of a schedule. The units of each kind of state take turns.
class Staging {
 public:
  Staging(const BufferPlan& plan, Schedule& schedule, InstructionList& list)
      : plan_(plan), s_(schedule), list_(list), freed_(plan.slots.size(), -1), held_(plan.slots.size(), false) {}

  struct Taken {
    int slot = -1;
    int ready = -1;  // the instruction that has freed it, or the fetch into it; -1: none
  };
  /// The slot that was freed longest ago, for a state of `unit`.
  Taken take(StateKind state, int unit) {
    int best = -1;
    for (const int k : plan_.stage_slots[static_cast<std::size_t>(state)])
      if (!held_[at(k)] && (best < 0 || freed_[at(k)] < freed_[at(best)])) best = k;
    TESSERA_ASSERT(best >= 0, "no staging slot for unit %d", unit);
    add_user(s_.slots[at(best)], unit);
    return {best, freed_[at(best)]};
  }
  /// Takes one, and fetches the state into it once `home` (-1: none) has run, which wrote the state last.
  Taken fetch(StateKind state, int unit, int micro, int home = -1) {
    const Taken taken = take(state, unit);
    Instruction in{.op = Op::fetch, .stream = StreamId::fetch, .unit = unit, .micro = micro};
    in.state = state;
    in.stage = taken.slot;
    const int index = list_.add(std::move(in), {taken.ready, home});
    held_[at(taken.slot)] = true;
    return {taken.slot, index};
  }
  /// Stores the state after `writer`, which frees the slot. Returns the store.
  int store(StateKind state, int unit, int micro, int slot, int writer) {
    Instruction in{.op = Op::store, .stream = StreamId::store, .unit = unit, .micro = micro};
    in.state = state;
    in.stage = slot;
    const int index = list_.add(std::move(in), {writer});
    free(slot, index);
    return index;
  }
  /// `reader` is the last that uses it.
  void free(int slot, int reader) {
    freed_[at(slot)] = reader;
    held_[at(slot)] = false;
  }

 private:
  const BufferPlan& plan_;
  Schedule& s_;
  InstructionList& list_;
  std::vector<int> freed_;  // slot → the latest instruction that freed it
  std::vector<bool> held_;  // slot → from a fetch until it is freed
};

}  // namespace tessera::shard
