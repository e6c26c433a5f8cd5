// SPDX-License-Identifier: Apache-2.0
#pragma once
// The updates at the end of a step, and the fetches and stores of what they work on.

#include <vector>

#include "runtime/shard/instruction_list.hpp"

namespace tessera::shard {

class Updates {
 public:
  Updates(const BufferPlan& plan, Schedule& schedule, InstructionList& list, Staging& staging);

  /// The gradient of a unit is finished, and `stored` (-1: it is on the device), before module execution `execution`.
  /// Emits the update now if that need not wait for norm, and no later execution reads what it writes.
  void finished(int unit, int stored, int execution);
  /// Before norm: the first fetches of what the other updates work on.
  void fetch_ahead();
  /// The other updates, in unit order.
  void emit(int norm);

 private:
  struct Pending {
    int unit = -1;
    int stored = -1;        // the store of its gradient
    Staging::Taken staged;  // of an update that works in a staging slot
    int update = -1;        // the instruction, once there is one
  };
  void fetch(Pending& pending);
  void update(Pending& pending, int norm);
  /// Copies what the host has updated to the device.
  void fetch_updated(const Pending& pending, int norm);

  const BufferPlan& plan_;
  Schedule& s_;
  InstructionList& list_;
  Staging& staging_;
  std::vector<int> last_read_;           // unit → the last module execution that reads it; -1: none
  std::vector<Pending> pending_, done_;  // still to update; updated before norm
  std::size_t fetched_ = 0;              // of pending_
};

}  // namespace tessera::shard
