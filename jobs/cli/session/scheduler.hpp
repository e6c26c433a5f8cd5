// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a batch scheduler says of its nodes, asked by its own commands (sinfo, pbsnodes, lshosts, flux resource list).

#include <optional>
#include <string>
#include <vector>

namespace tessera::jobs {

/// The nodes of a queue or partition, which are alike in cores and GPUs.
struct NodeShape {
  int count = 0, cores = 0;           // 0: not known
  int sockets = 0;                    // 0: not known
  bool simultaneous_threads = false;  // the scheduler's CPUs are hardware threads, several a core
  std::optional<int> gpus;            // none: the scheduler was not asked
  std::string where;                  // "partition gpu (sinfo)"
};

/// Asks `scheduler` ("slurm", "pbs", "lsf" or "flux"). `partition` "": Slurm's default one; PBS, LSF and Flux are asked
/// about all nodes. Throws Error (usage) if it cannot be asked, or if the nodes differ.
[[nodiscard]] NodeShape node_shape(const std::string& scheduler, const std::string& partition);

/// The answer of a scheduler's command as node_shape reads it; `where` is for errors.
[[nodiscard]] NodeShape slurm_nodes(const std::string& sinfo, const std::string& partition);
[[nodiscard]] NodeShape pbs_nodes(const std::string& pbsnodes_json);
[[nodiscard]] NodeShape lsf_nodes(const std::string& lshosts);
[[nodiscard]] NodeShape flux_nodes(const std::string& resource_list);

/// True if srun can start ranks by PMIx (`srun --mpi=list`).
[[nodiscard]] bool srun_has_pmix();

}  // namespace tessera::jobs
