#pragma once
// Prompts: the texts to continue, from the command line and a file.

#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// Collective: rank 0 reads, all get the same. Those of --prompt, then those of --prompt_file: the lines of a text that
/// are not blank, or the "prompt" (or "text") of each line of a .jsonl. Throws Error (usage: none, an empty one; data:
/// the file).
[[nodiscard]] std::vector<std::string> read_prompts(const Options& options, World& world);

}  // namespace tessera::jobs
