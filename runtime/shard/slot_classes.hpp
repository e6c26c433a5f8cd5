// SPDX-License-Identifier: Apache-2.0
#pragma once
// Slot classes: which units share which buffers, so that the buffers together are as small as possible. Pure; used by
// the schedule builder.

#include <cstdint>
#include <vector>

namespace tessera::shard {

/// Size of a unit, and the time steps (indices of module executions, ascending) at which it must be in a slot.
struct SlotDemand {
  int unit = -1;
  std::int64_t bytes = 0;
  std::vector<int> times;
};

/// Units of similar size (within a factor of 2) and the number of slots that they share.
struct SlotClass {
  std::vector<int> units;  // ascending
  int num_slots = 0;
};

/// Groups the units so that Σ num_slots · largest unit is minimal. A class has as many slots as units of it are needed
/// at one time. Classes are ordered by their lowest unit.
[[nodiscard]] std::vector<SlotClass> make_slot_classes(std::vector<SlotDemand> demands);

}  // namespace tessera::shard
