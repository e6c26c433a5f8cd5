// SPDX-License-Identifier: Apache-2.0
// Sorts the units by size and partitions the sequence into classes by dynamic programming.

#include "runtime/shard/slot_classes.hpp"

#include <algorithm>
#include <limits>

namespace tessera::shard {
namespace {

/// Units of equal size together, largest first. A class takes all units of a size.
std::vector<std::vector<SlotDemand>> group_by_size(std::vector<SlotDemand> demands) {
  std::stable_sort(demands.begin(), demands.end(),
                   [](const SlotDemand& a, const SlotDemand& b) { return a.bytes > b.bytes; });
  std::vector<std::vector<SlotDemand>> groups;
  for (SlotDemand& d : demands) {
    if (groups.empty() || groups.back().front().bytes != d.bytes) groups.emplace_back();
    groups.back().push_back(std::move(d));
  }
  return groups;
}

/// How many of the units added so far are needed at one time, at most.
class Occupancy {
 public:
  explicit Occupancy(int num_times) : count_(static_cast<std::size_t>(num_times), 0) {}
  void add(const SlotDemand& demand) {
    for (const int time : demand.times) most_ = std::max(most_, ++count_[static_cast<std::size_t>(time)]);
  }
  [[nodiscard]] int slots() const { return most_; }

 private:
  std::vector<int> count_;
  int most_ = 0;
};

struct Partition {
  std::int64_t cost = std::numeric_limits<std::int64_t>::max();
  std::size_t first = 0;  // first size of the last class
  int slots = 0;          // of the last class
};

}  // namespace

std::vector<SlotClass> make_slot_classes(std::vector<SlotDemand> demands) {
  int num_times = 0;
  for (const SlotDemand& d : demands) {
    if (!d.times.empty()) num_times = std::max(num_times, d.times.back() + 1);
  }
  const auto groups = group_by_size(std::move(demands));
  std::vector<Partition> best(groups.size() + 1);  // best[n]: of the first n sizes
  best[0].cost = 0;
  for (std::size_t first = 0; first < groups.size(); ++first) {
    const std::int64_t largest = groups[first].front().bytes;
    Occupancy occupancy(num_times);
    for (std::size_t n = first + 1; n <= groups.size() && 2 * groups[n - 1].front().bytes >= largest; ++n) {
      for (const SlotDemand& d : groups[n - 1]) occupancy.add(d);
      const std::int64_t cost = best[first].cost + occupancy.slots() * largest;
      if (cost < best[n].cost) best[n] = {cost, first, occupancy.slots()};
    }
  }
  std::vector<SlotClass> out;
  for (std::size_t n = groups.size(); n > 0; n = best[n].first) {
    SlotClass slot_class;
    slot_class.num_slots = best[n].slots;
    for (std::size_t r = best[n].first; r < n; ++r) {
      for (const SlotDemand& d : groups[r]) slot_class.units.push_back(d.unit);
    }
    std::sort(slot_class.units.begin(), slot_class.units.end());
    out.push_back(std::move(slot_class));
  }
  std::sort(out.begin(), out.end(),
            [](const SlotClass& a, const SlotClass& b) { return a.units.front() < b.units.front(); });
  return out;
}

}  // namespace tessera::shard
