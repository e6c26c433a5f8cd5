// SPDX-License-Identifier: Apache-2.0
#pragma once
// What buffers hold, and who has used them last, as the verifier follows them through a schedule.

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// Micro-batches summed in a buffer, as disjoint intervals [first, last).
class MicroSet {
 public:
  /// False if one of them is already included.
  bool add(const MicroSet& other) {
    for (const auto& part : other.parts_) {
      auto next = std::lower_bound(parts_.begin(), parts_.end(), part);
      if (next != parts_.end() && next->first < part.second) return false;
      if (next != parts_.begin() && std::prev(next)->second > part.first) return false;
      next = parts_.insert(next, part);
      if (std::next(next) != parts_.end() && next->second == std::next(next)->first) {
        next->second = std::next(next)->second;
        next = std::prev(parts_.erase(std::next(next)));
      }
      if (next != parts_.begin() && std::prev(next)->second == next->first) {
        std::prev(next)->second = next->second;
        parts_.erase(next);
      }
    }
    return true;
  }
  static MicroSet of(int first, int last) {
    MicroSet out;
    if (first < last) out.parts_.emplace_back(first, last);
    return out;
  }
  [[nodiscard]] bool empty() const { return parts_.empty(); }
  void clear() { parts_.clear(); }
  friend bool operator==(const MicroSet&, const MicroSet&) = default;

 private:
  std::vector<std::pair<int, int>> parts_;
};

/// The last uses of a buffer, as events.
struct Uses {
  int writer = -1;
  std::array<int, num_streams> readers = nobody();  // readers since the last write, by stream

 private:
  static constexpr std::array<int, num_streams> nobody() {
    std::array<int, num_streams> none{};
    none.fill(-1);
    return none;
  }
};

struct ParamSlot : Uses {
  int unit = -1;        // unit in the slot; -1: free
  int gathered = -1;    // the step whose parameters it holds
  bool loaded = false;  // gathered before the first step, by the load schedule
};

struct GradSlot : Uses {
  int unit = -1;
  int micro = -1;         // the latest micro-batch that contributed
  int contributions = 0;  // of that micro-batch
  bool reduced = false;   // in place
  MicroSet micros;        // complete ones and `micro`
};

/// A gradient summed over ranks: the content of an accumulator, a sum slot, or in place of a gradient slot.
struct Sum {
  MicroSet micros;             // empty: no gradient
  bool over_replicas = false;  // and over the replicate axes, if the unit has any
  friend bool operator==(const Sum&, const Sum&) = default;
};

struct SumBuffer : Uses {
  Sum sum;
  int unit = -1;  // of a sum slot
};

struct UnitState {
  Uses master;
  int updates = 0;
  int contributors = 0;   // modules
  bool complete = false;  // its gradient holds every micro-batch, summed over all ranks
  int last_reduce = -1;   // event
  int grad_slot = -1;     // its slot, if reduced in place,
  Sum in_place;           // and what it holds then
  std::vector<SumBuffer> accumulators;
};

}  // namespace tessera::shard
