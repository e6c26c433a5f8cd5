// Chrome trace events: X spans with microseconds, M names of process and lanes.
#include "jobs/cli/session/trace.hpp"

#include "jobs/cli/session/run_directory.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::jobs {

std::string chrome_trace(const std::vector<train::TraceSpan>& spans, int rank, int world, const std::string& host,
                         const char* transport) {
  std::string out = "{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\",\n\"distributedInfo\": " +
                    strfmt("{\"rank\": %d, \"world_size\": %d, \"backend\": ", rank, world) + json_string(transport) +
                    "},\n\"traceEvents\": [\n";
  out += strfmt("{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": ", rank) +
         json_string(strfmt("rank %d@", rank) + host) + "}},\n";
  out += strfmt("{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}}", rank,
                rank);
  for (int lane = 0; lane < shard::num_streams; ++lane) {
    out +=
        strfmt(",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}}",
               rank, lane, shard::name_of(static_cast<shard::StreamId>(lane)));
  }
  for (const train::TraceSpan& span : spans) {
    const bool waits = span.name.rfind("wait", 0) == 0;
    out +=
        strfmt(",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"cat\": \"%s\", \"name\": ",
               rank, span.lane, span.begin_s * 1e6, (span.end_s - span.begin_s) * 1e6,
               waits ? "wait" : shard::name_of(static_cast<shard::StreamId>(span.lane))) +
        json_string(span.name) + "}";
  }
  return out + "\n]}\n";
}

}  // namespace tessera::jobs
