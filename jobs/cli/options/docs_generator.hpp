// SPDX-License-Identifier: Apache-2.0
#pragma once
// Texts generated from the option table: help, the man page, docs/cli.md, shell completions, the JSON schema.

#include <string>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

/// Help of a command, or of the program if `command` is null; `all`: with types, defaults, aliases and equivalents.
/// `stage`: of the command sft or pt, with its defaults; "": none.
[[nodiscard]] std::string help_text(const CommandSpec* command, bool all, const std::string& stage = "");
/// docs/cli.md.
[[nodiscard]] std::string markdown();
/// man page tessera(1), roff.
[[nodiscard]] std::string man_page(const std::string& version);
/// JSON schema (draft 2020-12) of a configuration file.
[[nodiscard]] std::string json_schema();
/// "bash", "zsh" or "fish"; throws Error (usage) for another shell.
[[nodiscard]] std::string completion_script(const std::string& shell);

}  // namespace tessera::jobs
