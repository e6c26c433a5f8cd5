// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/activation_slots.hpp"

#include <algorithm>

#include "runtime/base/at.hpp"

namespace tessera::shard {
namespace {

class ActivationPlacer {
 public:
  ActivationPlacer(const ScheduleInput& input, ScheduleKind kind, Schedule& schedule)
      : s_(schedule),
        first_(kind == ScheduleKind::train ? first_backward(input.modules) : static_cast<int>(input.modules.size())),
        recompute_(input.policy.recompute) {
    s_.offloads_activations = kind == ScheduleKind::train && input.policy.activations != Tier::device;
  }

  void run() {
    const std::size_t n = s_.modules.size();
    std::vector<ActivationSlots> of_modules(n);
    for (int m = 0; m < static_cast<int>(n); ++m) of_modules[at(m)] = module(m);
    for (int micro = 0; micro < s_.num_micro; ++micro)
      s_.forward_slots.insert(s_.forward_slots.end(), of_modules.begin(), of_modules.end());
    if (at(first_) < n) s_.backward_slots = s_.forward_slots;
    for (std::size_t k = 0; k < s_.backward_slots.size(); ++k)
      if (k % n < at(first_)) s_.backward_slots[k] = {};
    for (const ReferenceModel& reference : s_.references) {
      std::vector<ActivationSlots>& slots = s_.reference_slots.emplace_back(reference.modules.size());
      for (int m = 0; m < static_cast<int>(slots.size()); ++m) {
        if (m > 0) slots[at(m)].input = alternate(m - 1);
        for (int v = 0; v < static_cast<int>(reference.modules[at(m)].values.size()); ++v)
          slots[at(m)].values.push_back(slot({SlotUse::value, -1, v}));
      }
    }
  }

 private:
  ActivationSlots module(int m) {
    const ModuleUse& use = s_.modules[at(m)];
    ActivationSlots slots;
    if (m > 0 && !s_.offloads_activations) slots.input = output(m - 1);
    const bool again = recomputes(recompute_) && use.recomputable;
    for (int v = 0; v < static_cast<int>(use.values.size()); ++v) {
      const bool own = m >= first_ && use.values[at(v)].kept && !again;
      slots.values.push_back(slot({SlotUse::value, own ? m : -1, v}));
      if (m >= first_)
        slots.value_gradients.push_back(use.values[at(v)].constant ? -1 : slot({SlotUse::value_gradient, -1, v}));
    }
    if (m < first_) return slots;
    if (use.saves && !(s_.offloads_activations && use.offloads)) slots.saved = slot({SlotUse::saved, m});
    if (use.saves_again) slots.recomputed = slot({SlotUse::recomputed});
    if (m > first_) slots.gradient = slot({SlotUse::output_gradient});
    return slots;
  }

  int output(int m) { return m + 1 < first_ ? alternate(m) : slot({SlotUse::output, m}); }

  /// The output of a module that has no backward, in one of two slots.
  int alternate(int m) { return slot({SlotUse::output, m % 2}); }

  /// The slot of that id; where activations are offloaded, outputs are in the first staging slots of inputs.
  int slot(SlotId id) {
    int inputs = 0;
    for (std::size_t k = 0; k < s_.slots.size(); ++k) {
      const Slot& other = s_.slots[k];
      if (other.kind == Slot::Kind::activation && other.id == id) return static_cast<int>(k);
      if (id.use == SlotUse::output && other.kind == Slot::Kind::stage && other.state == StateKind::input &&
          inputs++ == id.of)
        return static_cast<int>(k);
    }
    s_.slots.push_back({Slot::Kind::activation, false, {}, {}, id});
    return static_cast<int>(s_.slots.size()) - 1;
  }

  Schedule& s_;
  int first_;  // module with a backward
  Recompute recompute_;
};

}  // namespace

void place_activations(const ScheduleInput& input, ScheduleKind kind, Schedule& schedule) {
  ActivationPlacer(input, kind, schedule).run();
}

}  // namespace tessera::shard
