// SPDX-License-Identifier: Apache-2.0
#pragma once
// One invocation of the program, as a command gets it.

#include <chrono>
#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

struct Call {
  const Invocation& invocation;
  std::vector<std::string> command_line;
  std::chrono::steady_clock::time_point started;
  [[nodiscard]] const Options& options() const { return invocation.options; }
};

}  // namespace tessera::jobs
