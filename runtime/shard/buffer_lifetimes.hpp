// SPDX-License-Identifier: Apache-2.0
#pragma once
// When each unit is gathered, into which parameter slot, and until when it stays there: Belady replacement over the
// module executions of a step. Pure; used by the schedule builder.

#include <vector>

#include "runtime/shard/slot_classes.hpp"

namespace tessera::shard {

/// One forward of a module, or one backward with its recompute. Executions run one after another on the compute stream.
struct ModuleExecution {
  int module = -1;
  int micro = -1;
  bool forward = true;
  std::vector<int> units;  // that it reads; no unit twice
  int instance = 0;        // Instruction::instance
};

/// A unit in a slot, from its gather to its last read. Executions by index.
struct BufferLifetime {
  int unit = -1;
  int slot = -1;
  int gathered_before = -1;  // the gather is issued just before this execution
  int first_read = -1;
  int last_read = -1;
  int evicts = -1;  // index of the lifetime that had the slot before; -1: the slot was free
};

struct PrefetchDepth {
  int forward = 0, backward = 0;
};

/// Executions, by index, that read a unit which the execution before them (of those that read units) does not read.
/// Where each unit has one module, these are all that read units. Prefetch depths count them.
[[nodiscard]] std::vector<int> first_reads(const std::vector<ModuleExecution>& executions);

/// Lifetimes in the order of their gathers, which is the order of first reads. A gather is issued up to `depth`
/// executions (those of first_reads) ahead, with at most `depth` gathers ahead at a time. It takes the slot whose unit
/// is read again last. A unit stays gathered until its slot is taken, and is not gathered again if it is read before
/// that. slots[c]: the slots of classes[c], at least as many as one execution reads of that class.
[[nodiscard]] std::vector<BufferLifetime> plan_buffer_lifetimes(const std::vector<ModuleExecution>& executions,
                                                                int num_units, const std::vector<SlotClass>& classes,
                                                                const std::vector<std::vector<int>>& slots,
                                                                PrefetchDepth depth);

}  // namespace tessera::shard
