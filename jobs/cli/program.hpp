// SPDX-License-Identifier: Apache-2.0
#pragma once
// The program tessera: runs a command line.

#include <string>
#include <vector>

namespace tessera::jobs {

/// Takes the arguments of main without the program's name; returns the exit code. At most one "error:" line is printed
/// by all ranks together.
[[nodiscard]] int run_program(const std::vector<std::string>& arguments, char** environment);

}  // namespace tessera::jobs
