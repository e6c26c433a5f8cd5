// SPDX-License-Identifier: Apache-2.0
// `tessera report DIR [DIR …]`: report.html of a run, or a comparison of several.
#include "jobs/report/report.hpp"
#include "io/file/text_file.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

void report_command(const Call& call) {
  std::vector<std::string> directories;
  for (const std::string& operand : call.invocation.operands) directories.push_back(run_directory_in(operand));
  if (directories.empty())
    throw Error(ExitCode::usage, "report needs the directory of a run", "command line", "tessera report DIR [DIR ...]");
  const Options& options = call.options();
  const std::string out = options.has("out")       ? options.text("out")
                          : directories.size() > 1 ? "report.html"
                                                   : directories[0] + "/report.html";
  io::write_text(out, report_page(directories, std::string("tessera ") + program_version()));
  log::info("report    " + out);
}

}  // namespace tessera::jobs
