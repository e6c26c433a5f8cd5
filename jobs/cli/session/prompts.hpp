// SPDX-License-Identifier: Apache-2.0
#pragma once
// The prompts of `generate`, from the command line and a file.

#include <optional>
#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

struct Prompt {
  std::string text;
  std::optional<std::string> system;  // of its line of a .jsonl
};

/// Collective; rank 0 reads. --prompt first, then --prompt_file: each line of a text that is not blank, or "prompt" (or
/// "text") and, with --chat, "system" of each line of a .jsonl. Throws Error (usage: no prompt, an empty one; data: the
/// file). `train` has --prompt_file alone.
[[nodiscard]] std::vector<Prompt> read_prompts(const Options& options, World& world);

}  // namespace tessera::jobs
