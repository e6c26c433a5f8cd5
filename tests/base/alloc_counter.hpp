#pragma once
// Counts allocations of a test process, by standing in for malloc and its kin (operator new calls them). glibc; under a
// sanitizer by the sanitizer's own hook. Link tessera_alloc_counter into the executable. Memory from mmap is not seen.

#include <cstdint>

namespace tessera {

/// Allocations of the whole process so far, every thread: malloc, calloc, realloc,
/// aligned_alloc, memalign, posix_memalign, new.
[[nodiscard]] std::int64_t alloc_count();
/// Those of the calling thread.
[[nodiscard]] std::int64_t alloc_count_here();
/// Bytes asked for by all of them.
[[nodiscard]] std::int64_t alloc_bytes();

}  // namespace tessera
