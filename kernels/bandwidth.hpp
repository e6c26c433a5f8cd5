// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory bandwidth: the reference for a pass of generation, which reads every parameter once, and for element-wise
// kernels. The memory measured is in huge pages where the kernel has them, as models' memory is (Mapping).

#include <cstddef>

namespace tessera::kernels {

/// GB/s of reading `bytes` of memory (more than the caches hold) with this rank's threads: the best of `repeats`.
[[nodiscard]] double measure_read_bandwidth(std::size_t bytes, int repeats);
/// GB/s, read and written together, of copying `bytes` with this rank's threads: the best of `repeats`.
[[nodiscard]] double measure_copy_bandwidth(std::size_t bytes, int repeats);

}  // namespace tessera::kernels
