#pragma once
// Reading a checkpoint through: every block of every file against its checksum. Finds all damage, and not only the
// first.

#include <string>
#include <vector>

#include "runtime/comm/world.hpp"

namespace tessera::io {

struct VerifyReport {
  std::uint64_t bytes = 0;  // read and checked, over all ranks
  double seconds = 0;
  std::vector<std::string> damage;  // one line each: file, block, and the data sets that lie there; on rank 0 only
  std::int64_t num_damaged = 0;     // on every rank
};

/// Collective. Throws Error (data) on every rank alike where there is nothing to check against: no manifest, or a
/// damaged one.
[[nodiscard]] VerifyReport verify_checkpoint(World& world, const std::string& directory, int threads);

}  // namespace tessera::io
