// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random numbers as functions of a key and a counter (Philox 4x32-10; Salmon et al., SC 2011): without state, so that
// they do not depend on the number of ranks.

#include <array>
#include <cstdint>

#include "runtime/base/hash.hpp"

namespace tessera {

/// Four 32-bit numbers for (key, counter).
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                                  std::uint64_t counter_high = 0);

/// Uniform in [0, 1) with 53 bits, for (key, index).
[[nodiscard]] double uniform(std::uint64_t key, std::uint64_t index);

/// Standard normal for (key, index), by Box-Muller in double.
[[nodiscard]] double normal(std::uint64_t key, std::uint64_t index);

/// Element `index` of a random permutation of [0, n) chosen by `key`, computed without a table (cycle-walking Feistel
/// network).
[[nodiscard]] std::uint64_t permute(std::uint64_t key, std::uint64_t n, std::uint64_t index);

}  // namespace tessera
