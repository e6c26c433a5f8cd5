// SPDX-License-Identifier: Apache-2.0
#pragma once
// Helpers of the option tests: parse a command line without the process's environment variables.

#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

inline Invocation parsed(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  return parse_command_line(arguments, pointers.data());
}

/// The error line of a command line that must fail with `code`; if it does not, a test failure and "".
std::string error_line(const std::vector<std::string>& arguments, ExitCode code = ExitCode::usage,
                       const std::vector<std::string>& environment = {});

/// The options that the text of a configuration file sets, and the error line of a text that must fail.
Options options_of_yaml(const std::string& text);
std::string error_line_of_yaml(const std::string& text);

}  // namespace tessera::jobs
