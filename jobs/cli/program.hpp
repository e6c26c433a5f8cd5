#pragma once
// The program: command line to exit code.

#include <string>
#include <vector>

namespace tessera::jobs {

/// main() without its name. Prints at most one "error:" line over all ranks.
[[nodiscard]] int run_program(const std::vector<std::string>& arguments, char** environment);

}  // namespace tessera::jobs
