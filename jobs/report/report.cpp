// SPDX-License-Identifier: Apache-2.0
#include "jobs/report/report.hpp"

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "jobs/report/page.hpp"
#include "jobs/report/run_record.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

std::string now_as_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &parts);
  return text;
}

/// Text inside a <script>: "</script>" and "<!--" in a string must not end it.
std::string in_script(const Json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') text += "\\u003c";
    else text += c;
  }
  return text;
}

/// Runs may have one name: then the directory is added.
void make_labels_differ(Json& runs) {
  std::set<std::string> seen;
  bool twice = false;
  for (const Json& run : runs) twice = !seen.insert(run.at("label").get<std::string>()).second || twice;
  for (Json& run : runs)
    if (twice) run["label"] = run.at("label").get<std::string>() + " (" + run.at("directory").get<std::string>() + ")";
}

}  // namespace

std::string report_page(const std::vector<std::string>& directories, const std::string& program) {
  Json runs = Json::array();
  for (const std::string& directory : directories) runs.push_back(read_run_record(directory));
  make_labels_differ(runs);
  const Json data = {{"program", program}, {"written", now_as_text()}, {"runs", runs}};
  const std::string page = report_template, mark = "{{DATA}}";
  const std::size_t at = page.find(mark);
  return page.substr(0, at) + in_script(data) + page.substr(at + mark.size());
}

std::string run_directory_in(const std::string& directory) {
  if (io::exists(directory + "/logging.jsonl")) return directory;
  const auto versions = io::list_versions(directory);
  if (!versions.empty() && io::exists(versions.front().second + "/logging.jsonl")) return versions.front().second;
  throw Error(ExitCode::data, "there is no run: no logging.jsonl", directory,
              "Give the directory of a run, or the --output_dir that has its versions");
}

}  // namespace tessera::jobs
