// SPDX-License-Identifier: Apache-2.0
// One step of a Chrome trace that session/trace.cpp has written.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "jobs/report/run_record.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

/// The first file by name: the lowest rank.
std::string trace_file(const std::string& directory) {
  std::string first;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string path = entry.path().string();
    if (entry.path().filename().string().starts_with("rank-") && path.ends_with(".json") &&
        (first.empty() || path < first))
      first = path;
  }
  return first;
}

/// When the first step's updates end: the next forward pass begins a step. Gathers of the next step may begin before.
double end_of_first_step(const std::vector<Json>& spans) {
  double end = 0;
  bool updates = false;
  for (const Json& span : spans) {  // by begin
    const std::string name = span.at("name").get<std::string>();
    if (updates && name.starts_with("forward")) return end;
    if (!name.starts_with("update")) continue;
    updates = true;
    end = std::max(end, span.at("ts").get<double>() + span.at("dur").get<double>());
  }
  return updates ? end : 1e300;
}

}  // namespace

Json read_step_trace(const std::string& directory) {
  const std::string path = trace_file(directory);
  if (path.empty()) return nullptr;
  try {
    const Json trace = Json::parse(io::read_text(path, std::size_t{1} << 30));
    std::vector<Json> spans;
    Json lanes = Json::array();
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") spans.push_back(event);
      else if (event.at("name") == "thread_name") lanes.push_back(event.at("args").at("name"));
    }
    if (spans.empty()) return nullptr;
    std::ranges::stable_sort(spans, {}, [](const Json& span) { return span.at("ts").get<double>(); });
    const double begin = spans.front().at("ts").get<double>(), end = end_of_first_step(spans);
    std::erase_if(spans, [&](const Json& span) { return span.at("ts").get<double>() >= end; });
    constexpr std::size_t most = 5000;
    Json shown = Json::array();
    for (std::size_t i = 0; i < std::min(spans.size(), most); ++i)
      shown.push_back(
          {spans[i].at("tid"), spans[i].at("ts").get<double>() - begin, spans[i].at("dur"), spans[i].at("name")});
    return {{"rank", trace.at("distributedInfo").at("rank")},
            {"lanes", lanes},
            {"spans", shown},
            {"left_out", spans.size() - shown.size()}};
  } catch (const Json::exception& error) {
    throw Error(ExitCode::data, std::string("not a trace of tessera: ") + error.what(), path,
                "Remove it, or record it again with --profile_steps");
  }
}

}  // namespace tessera::jobs
