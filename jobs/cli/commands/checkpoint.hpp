// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the subcommands of `tessera checkpoint`.

#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "io/inspect/recognize.hpp"
#include "jobs/cli/commands/commands.hpp"

namespace tessera::jobs {

/// Collective: io::recognize on rank 0, its result or Error on every rank.
[[nodiscard]] io::LocatedPath locate(World& world, const std::string& path);

/// --grep of inspect and of checkpoint diff; none if it is not given.
[[nodiscard]] std::optional<std::regex> grep_pattern(const Options& options);

/// `checkpoint diff A B`: exit code 0 if equal, 3 if not.
int diff_command(const Call& call, World& world, const std::vector<std::string>& paths);

}  // namespace tessera::jobs
