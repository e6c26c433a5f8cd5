#pragma once
// Residency: which unit lies gathered in which parameter slot, from which execution to which. Pure; used by the
// builder.

#include <vector>

#include "runtime/shard/slot_classes.hpp"

namespace tessera::shard {

/// A module at work: one forward, or one backward with its recompute. Visits follow one another on the compute stream.
struct ModuleExecution {
  int module = -1;
  int micro = -1;
  bool forward = true;
  std::vector<int> units;  // read here; no unit twice
};

/// One lifetime of a unit in a slot.
struct BufferLifetime {
  int unit = -1;
  int slot = -1;
  int gathered_before = -1;  // the gather is issued just before this execution
  int first_read = -1;       // execution
  int last_read = -1;        // execution
  int evicts = -1;           // index of the lifetime whose slot it takes over; -1: the slot was free
};

struct PrefetchDepth {
  int forward = 0, backward = 0;
};

/// Stays in the order of their gathers. A gather is issued up to `depth` executions (that read units) ahead of its
/// first read, at most `depth` of them at once, strictly in the order of need, into the slot whose occupant is needed
/// last; a unit lifetimes where it is until its slot is taken, so that one used again before that is not gathered
/// twice. slots[c]: the slots of classes[c]; each has at least as many as one execution reads of the class.
[[nodiscard]] std::vector<BufferLifetime> plan_buffer_lifetimes(const std::vector<ModuleExecution>& executions,
                                                                int num_units, const std::vector<SlotClass>& classes,
                                                                const std::vector<std::vector<int>>& slots,
                                                                PrefetchDepth depth);

}  // namespace tessera::shard
