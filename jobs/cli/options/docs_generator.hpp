#pragma once
// Words made from the option table: help, the man page, docs/cli.md, completions, the JSON schema. Pure.

#include <string>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

/// Of the program if `command` is null; `all`: every option with type, default, aliases and matching names.
[[nodiscard]] std::string help_text(const CommandSpec* command, bool all);
/// docs/cli.md.
[[nodiscard]] std::string markdown();
/// man page tessera(1), roff.
[[nodiscard]] std::string man_page(const std::string& version);
/// JSON schema (draft 2020-12) of a configuration file of flat names.
[[nodiscard]] std::string json_schema();
/// "bash", "zsh" or "fish"; throws Error (usage) for another shell.
[[nodiscard]] std::string completion_script(const std::string& shell);

}  // namespace tessera::jobs
