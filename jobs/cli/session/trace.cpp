// SPDX-License-Identifier: Apache-2.0
// Chrome trace events: "X" is a span, in microseconds; "M" names the process and its lanes.
#include "jobs/cli/session/trace.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/shard/schedule.hpp"

namespace tessera::jobs {

namespace {
using Json = nlohmann::ordered_json;
}  // namespace

std::string chrome_trace(const std::vector<exec::TraceSpan>& spans, int rank, int world, const std::string& host,
                         const char* transport) {
  // One object a line, so that a long trace is never in memory as a tree.
  std::string out = R"({"schemaVersion":1,"displayTimeUnit":"ms","distributedInfo":)" +
                    Json{{"rank", rank}, {"world_size", world}, {"backend", transport}}.dump() + ",\"traceEvents\":[";
  const char* separator = "\n";
  const auto add = [&](const Json& event) {
    out += separator + event.dump(-1, ' ', false, Json::error_handler_t::replace);
    separator = ",\n";
  };
  const auto microseconds = [](double seconds) { return std::round(seconds * 1e9) * 1e-3; };
  add({{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", strfmt("rank %d@", rank) + host}}}});
  add({{"ph", "M"}, {"pid", rank}, {"name", "process_sort_index"}, {"args", {{"sort_index", rank}}}});
  for (int lane = 0; lane < shard::num_streams; ++lane) {
    const auto in_lane = [lane](const exec::TraceSpan& span) { return span.lane == lane; };
    if (lane > static_cast<int>(shard::StreamId::replicate) && std::ranges::none_of(spans, in_lane)) continue;
    add({{"ph", "M"},
         {"pid", rank},
         {"tid", lane},
         {"name", "thread_name"},
         {"args", {{"name", shard::name_of(static_cast<shard::StreamId>(lane))}}}});
  }
  for (const exec::TraceSpan& span : spans) {
    const bool waits = span.name.starts_with("wait");
    add({{"ph", "X"},
         {"pid", rank},
         {"tid", span.lane},
         {"ts", microseconds(span.begin_s)},
         {"dur", microseconds(span.end_s - span.begin_s)},
         {"cat", waits ? "wait" : shard::name_of(static_cast<shard::StreamId>(span.lane))},
         {"name", span.name}});
  }
  return out + "\n]}\n";
}

}  // namespace tessera::jobs
