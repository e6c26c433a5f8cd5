// SPDX-License-Identifier: Apache-2.0
#pragma once
// Examples of command lines, printed by help and in the man page.

#include <span>
#include <string>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

struct Example {
  CommandBit command;
  const char* stage;  // of train: "pt" or "sft"; "": of both, or another command
  const char* what;
  const char* line;
};
[[nodiscard]] std::span<const Example> example_table();
/// "\nExamples\n  # …\n  tessera …\n" of a command; "" if it has none. `stage`: of sft or pt alone; "": of all.
[[nodiscard]] std::string examples_text(const CommandSpec& command, const std::string& stage = {});

}  // namespace tessera::jobs
