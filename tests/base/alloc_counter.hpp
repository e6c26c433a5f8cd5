// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts the allocations of a test process by interposing malloc and its family (operator new calls them); under a
// sanitizer, by the sanitizer's hooks. glibc. Link tessera_alloc_counter into the executable. Memory from mmap is not
// counted.

#include <cstdint>

namespace tessera {

/// Allocations of the whole process so far, every thread: malloc, calloc, realloc, aligned_alloc, memalign,
/// posix_memalign, new.
[[nodiscard]] std::int64_t alloc_count();
/// Those of the calling thread.
[[nodiscard]] std::int64_t alloc_count_here();
/// Bytes requested by all of them.
[[nodiscard]] std::int64_t alloc_bytes();

/// While one lives, attributes each allocation of the process to Tessera or to a library. An allocation belongs to the
/// module of the first stack frame outside the C and C++ runtimes. The executable and libtessera_* are Tessera's, and
/// so is a frame that cannot be resolved; every other shared library (OpenBLAS, MPI, libgomp) is a library. At most one
/// at a time.
class AllocWatch {
 public:
  AllocWatch();
  ~AllocWatch();
  AllocWatch(const AllocWatch&) = delete;
  AllocWatch& operator=(const AllocWatch&) = delete;

  [[nodiscard]] std::int64_t tessera() const;
  [[nodiscard]] std::int64_t libraries() const;
  /// Bytes that libraries have allocated since the watch began and not freed; now, and at most.
  [[nodiscard]] std::int64_t library_bytes() const;
  [[nodiscard]] std::int64_t peak_library_bytes() const;
};

}  // namespace tessera
