// SPDX-License-Identifier: Apache-2.0
// Goes through the executions in order and keeps track of which unit each slot holds.

#include "runtime/shard/buffer_lifetimes.hpp"

#include <algorithm>
#include <deque>
#include <limits>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"

namespace tessera::shard {
namespace {

constexpr int never = std::numeric_limits<int>::max();

class BeladyReplacement {
 public:
  BeladyReplacement(const std::vector<ModuleExecution>& executions, int num_units,
                    const std::vector<SlotClass>& classes, const std::vector<std::vector<int>>& slots,
                    PrefetchDepth depth)
      : executions_(executions),
        depth_(depth),
        lifetime_of_(at(num_units), -1),
        slots_of_(at(num_units), nullptr),
        needs_(at(num_units)) {
    int num_slots = 0;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      for (const int u : classes[c].units) slots_of_[at(u)] = &slots[c];
      for (const int s : slots[c]) num_slots = std::max(num_slots, s + 1);
    }
    occupant_.assign(at(num_slots), -1);
    for (int t = 0; t < static_cast<int>(executions.size()); ++t) {
      for (const int u : executions[at(t)].units) needs_[at(u)].push_back(t);
    }
  }

  std::vector<BufferLifetime> run() {
    for (now_ = 0; now_ < static_cast<int>(executions_.size()); ++now_) {
      while (!ahead_.empty() && ahead_.front() <= now_) ahead_.pop_front();
      for (const int u : executions_[at(now_)].units) {
        if (lifetime_of_[at(u)] < 0) TESSERA_ASSERT(gather(u, now_), "no slot for unit %d", u);
      }
      for (const int u : executions_[at(now_)].units) {
        lifetimes_[at(lifetime_of_[at(u)])].last_read = now_;
        needs_[at(u)].pop_front();
      }
      prefetch();
    }
    return std::move(lifetimes_);
  }

 private:
  [[nodiscard]] int next_need(int unit) const { return needs_[at(unit)].empty() ? never : needs_[at(unit)].front(); }

  [[nodiscard]] bool read_now(int unit) const {
    const auto& units = executions_[at(now_)].units;
    return std::find(units.begin(), units.end(), unit) != units.end();
  }

  /// Issues the gathers of the executions ahead. Executions that are not among first_reads_ need none of their own.
  void prefetch() {
    while (ahead_from_ < first_reads_.size() && first_reads_[ahead_from_] <= now_) ++ahead_from_;
    for (std::size_t k = ahead_from_; k < first_reads_.size(); ++k) {
      const int t = first_reads_[k];
      const ModuleExecution& execution = executions_[at(t)];
      const int depth = execution.forward ? depth_.forward : depth_.backward;
      if (static_cast<int>(k - ahead_from_) >= depth) return;
      for (const int u : execution.units) {
        if (lifetime_of_[at(u)] >= 0) continue;
        if (static_cast<int>(ahead_.size()) >= depth || !gather(u, t)) return;
        ahead_.push_back(t);
      }
    }
  }

  /// Gathers `unit` into the slot whose unit is read again last. False if every slot holds a unit that is read now, or
  /// again no later than `first_read`.
  bool gather(int unit, int first_read) {
    int best = -1, best_need = first_read;
    for (const int s : *slots_of_[at(unit)]) {
      const int lifetime = occupant_[at(s)];
      if (lifetime < 0) {
        best = s;
        break;
      }
      const int other = lifetimes_[at(lifetime)].unit;
      if (!read_now(other) && next_need(other) > best_need) {
        best = s;
        best_need = next_need(other);
      }
    }
    if (best < 0) return false;
    const int evicted = occupant_[at(best)];
    if (evicted >= 0) lifetime_of_[at(lifetimes_[at(evicted)].unit)] = -1;
    occupant_[at(best)] = lifetime_of_[at(unit)] = static_cast<int>(lifetimes_.size());
    lifetimes_.push_back({unit, best, now_, first_read, first_read, evicted});
    return true;
  }

  const std::vector<ModuleExecution>& executions_;
  const std::vector<int> first_reads_ = first_reads(executions_);
  std::size_t ahead_from_ = 0;  // the first of first_reads_ after now_
  PrefetchDepth depth_;
  int now_ = 0;
  std::vector<int> lifetime_of_;  // unit → its lifetime, -1: not in a slot
  std::vector<int> occupant_;     // slot → the lifetime there
  std::vector<const std::vector<int>*> slots_of_;
  std::vector<std::deque<int>> needs_;  // unit → executions that will read it
  std::deque<int> ahead_;               // first reads of gathers issued ahead, ascending
  std::vector<BufferLifetime> lifetimes_;
};

}  // namespace

std::vector<int> first_reads(const std::vector<ModuleExecution>& executions) {
  std::vector<int> out;
  const std::vector<int>* before = nullptr;
  for (int t = 0; t < static_cast<int>(executions.size()); ++t) {
    const std::vector<int>& units = executions[at(t)].units;
    const auto is_new = [&](int u) { return before == nullptr || std::ranges::find(*before, u) == before->end(); };
    if (std::ranges::any_of(units, is_new)) out.push_back(t);
    if (!units.empty()) before = &units;
  }
  return out;
}

std::vector<BufferLifetime> plan_buffer_lifetimes(const std::vector<ModuleExecution>& executions, int num_units,
                                                  const std::vector<SlotClass>& classes,
                                                  const std::vector<std::vector<int>>& slots, PrefetchDepth depth) {
  return BeladyReplacement(executions, num_units, classes, slots, depth).run();
}

}  // namespace tessera::shard
