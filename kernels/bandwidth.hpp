#pragma once
// How fast memory is read: what a pass of generation, which reads every parameter once, is set against.

#include <cstddef>

namespace tessera::kernels {

/// GB/s of reading `bytes` of memory (more than the caches hold) on this rank's threads: best of `repeats`.
[[nodiscard]] double measure_read_bandwidth(std::size_t bytes, int repeats);

}  // namespace tessera::kernels
