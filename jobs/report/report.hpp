// SPDX-License-Identifier: Apache-2.0
#pragma once
// report.html: what a run, or several, did, as one file without references to others. page.html draws it.

#include <string>
#include <vector>

namespace tessera::jobs {

/// The page for these run directories; more than one are compared. Reads logging.jsonl, args.json, run.json, STATUS and
/// trace/ of each; all but logging.jsonl may be missing. Throws Error (data).
[[nodiscard]] std::string report_page(const std::vector<std::string>& directories, const std::string& program);

/// `directory`, or its newest version v<N>-… if it contains such and is no run directory itself. Throws Error (data)
/// if there is no run.
[[nodiscard]] std::string run_directory_in(const std::string& directory);

}  // namespace tessera::jobs
