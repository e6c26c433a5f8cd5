// SPDX-License-Identifier: Apache-2.0
#pragma once
// SharedMemory: memory that the ranks of a group on one node all map: MPI shared windows, or plain memory where ranks
// are threads.

#include <cstddef>

namespace tessera::comm {

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Collective, start-up only: the same zero-filled, page-aligned, untouched bytes for every member. Lives as long as
  /// this object. Throws Error (data) on every member if the node has no room.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
};

}  // namespace tessera::comm
