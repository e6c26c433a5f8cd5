// Least memory over all ways to cut the units, sorted by size, into classes of neighbours: dynamic programming.

#include "runtime/shard/slot_classes.hpp"

#include <algorithm>
#include <limits>

namespace tessera::shard {
namespace {

/// Runs of equal size, largest first: a class takes whole runs.
std::vector<std::vector<SlotDemand>> runs_of_equal_size(std::vector<SlotDemand> demands) {
  std::stable_sort(demands.begin(), demands.end(),
                   [](const SlotDemand& a, const SlotDemand& b) { return a.numel > b.numel; });
  std::vector<std::vector<SlotDemand>> runs;
  for (SlotDemand& d : demands) {
    if (runs.empty() || runs.back().front().numel != d.numel) runs.emplace_back();
    runs.back().push_back(std::move(d));
  }
  return runs;
}

/// How many of the units added so far meet at one time.
class Occupancy {
 public:
  explicit Occupancy(int num_times) : count_(static_cast<std::size_t>(num_times), 0) {}
  void add(const SlotDemand& demand) {
    for (const int time : demand.places) most_ = std::max(most_, ++count_[static_cast<std::size_t>(time)]);
  }
  [[nodiscard]] int slots() const { return most_; }

 private:
  std::vector<int> count_;
  int most_ = 0;
};

struct Partition {
  std::int64_t cost = std::numeric_limits<std::int64_t>::max();
  std::size_t first = 0;  // run that opens the last class
  int slots = 0;          // of the last class
};

}  // namespace

std::vector<SlotClass> make_slot_classes(std::vector<SlotDemand> demands) {
  int num_times = 0;
  for (const SlotDemand& d : demands) {
    if (!d.places.empty()) num_times = std::max(num_times, d.places.back() + 1);
  }
  const auto runs = runs_of_equal_size(std::move(demands));
  std::vector<Partition> best(runs.size() + 1);  // best[n]: of the first n runs
  best[0].cost = 0;
  for (std::size_t first = 0; first < runs.size(); ++first) {
    const std::int64_t largest = runs[first].front().numel;
    Occupancy occupancy(num_times);
    for (std::size_t n = first + 1; n <= runs.size() && 2 * runs[n - 1].front().numel >= largest; ++n) {
      for (const SlotDemand& d : runs[n - 1]) occupancy.add(d);
      const std::int64_t cost = best[first].cost + occupancy.slots() * largest;
      if (cost < best[n].cost) best[n] = {cost, first, occupancy.slots()};
    }
  }
  std::vector<SlotClass> out;
  for (std::size_t n = runs.size(); n > 0; n = best[n].first) {
    SlotClass group;
    group.num_slots = best[n].slots;
    for (std::size_t r = best[n].first; r < n; ++r) {
      for (const SlotDemand& d : runs[r]) group.units.push_back(d.unit);
    }
    std::sort(group.units.begin(), group.units.end());
    out.push_back(std::move(group));
  }
  std::sort(out.begin(), out.end(),
            [](const SlotClass& a, const SlotClass& b) { return a.units.front() < b.units.front(); });
  return out;
}

}  // namespace tessera::shard
