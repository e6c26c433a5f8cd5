// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options and values of other tools (LLaMA-Factory, axolotl, TRL, older ms-swift) that Tessera has under another name:
// they are refused, and the error names ours. They are not mapped, because their defaults, or what they do to data,
// differ. What is not built at all is in unsupported.hpp.

#include <string>
#include <string_view>
#include <vector>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

struct RenamedOption {
  const char* names;     // separated by blanks; a last '*' stands for any end of a name
  const char* accepted;  // values that ask for nothing: "false|none"; "": none
  const char* tools;     // "axolotl"
  const char* instead;   // "--lora_rank"; a sentence begins with a capital letter
};

/// The whole table.
[[nodiscard]] const std::vector<RenamedOption>& renamed_options();
/// The row of an option or key ('-' is '_'); null if there is none.
[[nodiscard]] const RenamedOption* find_renamed(std::string_view name);
/// Throws RefusedOption unless every value is an accepted one. `name`: as it was typed. `where`: "command line",
/// "run.yaml:3".
void check_renamed(const RenamedOption& option, const std::string& name, const std::vector<std::string>& values,
                   const std::string& where);

/// What to use in place of a value that another tool has for this option (--tuner_type qlora); "" if it is not known.
[[nodiscard]] std::string value_instead(const OptionSpec& spec, const std::string& value);

}  // namespace tessera::jobs
