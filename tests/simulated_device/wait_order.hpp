// SPDX-License-Identifier: Apache-2.0
#pragma once
// Drops one wait of one queue of the simulated device for an event of another: a test that the wait is needed.

#include <cstdint>

namespace tessera::simulated {

/// Queues are numbered in the order in which they are made; their waits in the order in which they are enqueued. Waits
/// for the queue's own events are not counted. A queue that runs ahead runs what it is given at once, as far as its
/// waits allow; the others run as late as they can.
struct WaitOrder {
  void (*number_queues)();  // queues made from now on are 0, 1, …; older ones have no number; nothing is dropped
  /// Counts again from 0. The queue runs ahead from its wait `wait` on, which is dropped; -1: at once, with all of its
  /// waits. Queue -1: none does.
  void (*drop)(int queue, std::int64_t wait);
  std::int64_t (*waits)(int queue);  // since the last drop(); -1: no such queue
  /// The dropped wait was for work that had not run, so that the host had not waited for it, and that no other
  /// waits order before what its queue was given next.
  bool (*needed)();
};

/// Programs that may run without the simulated device look its name up with dlsym.
inline constexpr const char* wait_order_name = "tessera_simulated_wait_order";
extern "C" const WaitOrder* tessera_simulated_wait_order();

}  // namespace tessera::simulated
