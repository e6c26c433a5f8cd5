#pragma once
// Slot classes: which units take turns in which buffers, so that all buffers together are small. Pure; used by the
// builder.

#include <cstdint>
#include <vector>

namespace tessera::shard {

/// What a unit asks of slots: its size, and the places of a step (ascending) at which it must be in one.
struct SlotDemand {
  int unit = -1;
  std::int64_t numel = 0;
  std::vector<int> places;
};

/// Units of like size (within a factor of 2) and how many slots they share.
struct SlotClass {
  std::vector<int> units;  // ascending
  int num_slots = 0;
};

/// Groups the units so that Σ num_slots · largest unit is least. A class has as many slots as it has units at one
/// time. Classes come in the order of their lowest unit.
[[nodiscard]] std::vector<SlotClass> make_slot_classes(std::vector<SlotDemand> demands);

}  // namespace tessera::shard
