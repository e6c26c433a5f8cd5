// SPDX-License-Identifier: Apache-2.0
// `tessera bench collectives`: the run's transport against MPI's own collectives, in one run.
#include <nlohmann/json.hpp>

#include "jobs/bench/bench.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"
#include "runtime/comm/bench.hpp"

namespace tessera::jobs {

void bench_collectives_command(const Call& call, World& world) {
  const Options& options = call.options();
  const std::uint64_t bytes = options.bytes("bench_bytes");
  const CollectiveBench result = bench_collectives(world, bytes);
  const double ratio_gather = result.mpi_gather_s / result.gather_s,
               ratio_reduce = result.mpi_reduce_s / result.reduce_s;
  if (options.flag("json")) {
    nlohmann::ordered_json json = {{"ranks", world.size()},
                                   {"bytes", bytes},
                                   {"transport", name_of(world.topology().transport)},
                                   {"all_gather_s", result.gather_s},
                                   {"mpi_all_gather_s", result.mpi_gather_s},
                                   {"reduce_scatter_s", result.reduce_s},
                                   {"mpi_reduce_scatter_s", result.mpi_reduce_s},
                                   {"memcpy_gb_per_s", result.memcpy_bytes_per_s / 1e9},
                                   {"waiting_share_of_a_core", result.waiting_share}};
    return log::info(json.dump(2));
  }
  log::info(version_line());
  log::info(strfmt("%s, %d ranks, transport %s; medians; both also read the result once", human_bytes(bytes).c_str(),
                   world.size(), name_of(world.topology().transport)));
  log::info(strfmt("%-16s %12s %12s %8s", "", "tessera", "MPI", "ratio"));
  log::info(strfmt("%-16s %9.3f ms %9.3f ms %7.2fx", "all-gather", 1e3 * result.gather_s, 1e3 * result.mpi_gather_s,
                   ratio_gather));
  log::info(strfmt("%-16s %9.3f ms %9.3f ms %7.2fx", "reduce-scatter", 1e3 * result.reduce_s, 1e3 * result.mpi_reduce_s,
                   ratio_reduce));
  log::info(strfmt("%-16s %9.2f GB/s on each rank", "memcpy", result.memcpy_bytes_per_s / 1e9));
  log::info(strfmt("%-16s %9.3f %% of a core, of a rank that waits one second for another", "waiting",
                   100 * result.waiting_share));
}

}  // namespace tessera::jobs
