// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks every block of every file of a checkpoint against its checksum, and reports all damage.

#include <string>
#include <vector>

#include "runtime/comm/world.hpp"

namespace tessera::io {

struct VerifyReport {
  std::uint64_t bytes = 0;  // read and checked, over all ranks
  double seconds = 0;
  std::vector<std::string> damage;  // one line each: file, block and its data sets; on rank 0
  std::int64_t num_damaged = 0;     // on every rank
};

/// Collective. Throws Error (data) on every rank alike if there is no manifest, or a damaged one.
[[nodiscard]] VerifyReport verify_checkpoint(World& world, const std::string& directory, int threads);

}  // namespace tessera::io
