#pragma once
// SharedMemory: memory that the members of a group on one node have in common. MPI windows, or plain memory where ranks
// are threads.

#include <cstddef>

namespace tessera::comm {

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Collective, start-up only. The same zero-filled bytes for every member, page-aligned, not yet touched; they live
  /// as long as the shelf. Throws Error (data) on every member alike when the node has no room for them.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
};

}  // namespace tessera::comm
