// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options and commands of other tools that are not built, and options that were removed: what to use instead. They are
// in no help, completion or docs page.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::jobs {

struct UnsupportedOption {
  const char* names;     // the option, then its aliases, separated by blanks; a last '*' stands for any end of a name
  const char* accepted;  // values that ask for nothing that is missing: "no|none"; "": none
  const char* message;   // what is missing and what to use instead
  const char* state = "not built yet";
};

/// The whole table. To build an option, remove its row here and add one to the option table.
[[nodiscard]] const std::vector<UnsupportedOption>& unsupported_options();
/// The row of an option, or of a key of an accelerate or DeepSpeed file ('-' is '_'); null if there is none.
[[nodiscard]] const UnsupportedOption* find_unsupported(std::string_view name);
/// Throws RefusedOption unless every value is an accepted one. `name`: as it was typed. `where`: "command line",
/// "run.yaml:3".
void check_unsupported(const UnsupportedOption& option, const std::string& name, const std::vector<std::string>& values,
                       const std::string& where);

/// What to use instead of a command of another tool; "" if `command` is not known.
[[nodiscard]] std::string unsupported_command(std::string_view command);

}  // namespace tessera::jobs
