// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lists in one text, where names of files may have blanks and commas.

#include <string>
#include <vector>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

/// The items of a list option in one argument of the command line: split at commas, but not within the name of a file,
/// a directory or a pattern that exists, nor in a command, which goes to the end (io::split_names).
[[nodiscard]] std::vector<std::string> argument_items(const OptionSpec& spec, const std::string& text);
/// The same of an environment variable or a configuration file: split at blanks, too.
[[nodiscard]] std::vector<std::string> list_items(const OptionSpec& spec, const std::string& text);

}  // namespace tessera::jobs
