// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory bandwidth: the reference for a pass of generation, which reads every parameter once, and for element-wise
// kernels.

#include <cstddef>
#include <cstdint>

namespace tessera::kernels {

/// GB/s of reading `bytes` of memory (more than the caches hold) with this rank's threads: the best of `repeats`. The
/// memory is in huge pages where the kernel has them, as models' memory is (Mapping).
[[nodiscard]] double measure_read_bandwidth(std::size_t bytes, int repeats);
/// Copies with this rank's threads, by ordinary loads and stores as kernels do.
void copy_words(const std::uint64_t* from, std::uint64_t* to, std::int64_t count);

}  // namespace tessera::kernels
