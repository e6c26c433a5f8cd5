// SPDX-License-Identifier: Apache-2.0
// `tessera bench collectives`: the run's transport against MPI's own collectives, in one run.
#include <nlohmann/json.hpp>

#include "jobs/bench/bench.hpp"
#include "jobs/bench/collective_bench.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// Share of the least time in which a host can send what it has to, at the rate of a raw socket; 0 on one host.
double share_of_socket(const CollectiveBench& bench, const CollectiveBench::Times& times, double seconds) {
  return bench.socket_bytes_per_s > 0 ? times.least_bytes / bench.socket_bytes_per_s / seconds : 0;
}

/// "  messages 14, rounds 4": of the rank that sends most; "" where nothing goes by messages.
std::string messages_of(const CollectiveBench::Times& times) {
  if (times.rounds == 0) return "";
  return strfmt("  messages %lu, rounds %lu", times.messages, times.rounds);
}

}  // namespace

void bench_collectives_command(const Call& call, World& world) {
  const Options& options = call.options();
  const std::uint64_t bytes = options.bytes("bench_bytes");
  const CollectiveBench result = bench_collectives(world, bytes, static_cast<int>(options.integer("bench_repeats")));
  const std::pair<const char*, const CollectiveBench::Times&> rows[] = {
      {"all_gather", result.gather}, {"reduce_scatter", result.reduce}, {"all_reduce", result.all_reduce}};
  if (options.flag("json")) {
    nlohmann::ordered_json json = {
        {"ranks", world.size()}, {"bytes", bytes}, {"transport", name_of(world.topology().transport)}};
    for (const auto& [name, times] : rows) {
      json[std::string(name) + "_s"] = times.ours_s, json["mpi_" + std::string(name) + "_s"] = times.mpi_s;
      json[std::string(name) + "_share_of_socket"] = share_of_socket(result, times, times.ours_s);
      json[std::string(name) + "_messages"] = times.messages, json[std::string(name) + "_rounds"] = times.rounds;
    }
    json["agreement_s"] = result.agreement.ours_s, json["agreement_messages"] = result.agreement.messages;
    json["socket_mb_per_s"] = result.socket_bytes_per_s / 1e6;
    json["memcpy_gb_per_s"] = result.memcpy_bytes_per_s / 1e9;
    json["waiting_share_of_a_core"] = result.waiting_share;
    return log::info(json.dump(2));
  }
  log::info(version_line());
  log::info(strfmt("%s, %d ranks, transport %s; medians; both also read the result once", human_bytes(bytes).c_str(),
                   world.size(), name_of(world.topology().transport)));
  const bool hosts = result.socket_bytes_per_s > 0;
  log::info(strfmt("%-16s %12s %12s %8s%s", "", "tessera", "MPI", "ratio", hosts ? "  share of a raw socket" : ""));
  for (const auto& [name, times] : rows) {
    std::string line = strfmt("%-16s %9.3f ms %9.3f ms %7.2fx", name, 1e3 * times.ours_s, 1e3 * times.mpi_s,
                              times.mpi_s / times.ours_s);
    if (hosts)
      line += strfmt("  %.1f %%, MPI %.1f %%", 100 * share_of_socket(result, times, times.ours_s),
                     100 * share_of_socket(result, times, times.mpi_s));
    log::info(line + messages_of(times));
  }
  log::info(strfmt("%-16s %9.3f ms", "agreement", 1e3 * result.agreement.ours_s) + messages_of(result.agreement) +
            " for 4 KiB of text, which ranks compare at a run's start");
  if (hosts)
    log::info(
        strfmt("%-16s %9.2f MB/s between hosts, both directions at once; an all_gather has to send %s from a host",
               "raw socket", result.socket_bytes_per_s / 1e6, human_bytes(result.gather.least_bytes).c_str()));
  if (!result.socket_error.empty()) log::info(strfmt("%-16s not measured: ", "raw socket") + result.socket_error);
  log::info(strfmt("%-16s %9.2f GB/s on each rank", "memcpy", result.memcpy_bytes_per_s / 1e9));
  log::info(strfmt("%-16s %9.3f %% of a core, of a rank that waits one second for another", "waiting",
                   100 * result.waiting_share));
}

}  // namespace tessera::jobs
