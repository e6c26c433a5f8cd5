// SPDX-License-Identifier: Apache-2.0
// `tessera completion SHELL`: the shell's completion script.
#include <cstdio>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/options/docs_generator.hpp"

namespace tessera::jobs {

void completion_command(const Call& call) {
  const std::vector<std::string>& operands = call.invocation.operands;
  if (operands.empty())
    throw Error(ExitCode::usage, "completion needs a shell", "command line", "tessera completion bash|zsh|fish");
  const std::string script = completion_script(operands[0]);
  std::fputs(script.c_str(), stdout);
}

}  // namespace tessera::jobs
