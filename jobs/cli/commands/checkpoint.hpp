#pragma once
// What the words of `tessera checkpoint` share.

#include <string>
#include <vector>

#include "io/inspect/recognize.hpp"
#include "jobs/cli/commands/commands.hpp"

namespace tessera::jobs {

/// Collective: rank 0 looks, all are told. Throws Error (data) as io::recognise does, on every rank alike.
[[nodiscard]] io::LocatedPath locate(World& world, const std::string& path);

/// `checkpoint diff A B`: exit code 0 if equal, 3 if not.
int diff_command(const Call& call, World& world, const std::vector<std::string>& paths);

}  // namespace tessera::jobs
