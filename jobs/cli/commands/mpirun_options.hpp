// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of Open MPI's mpirun that `tessera launch` must know: who binds the ranks, and how many there are.

#include <optional>
#include <string>
#include <vector>

namespace tessera::jobs {

struct MpirunOptions {
  std::vector<std::string> given;      // all of them, in order, without -N N and --npernode N
  std::vector<std::string> for_query;  // `given` without those that change what mpirun prints or writes
  bool binds = false;                  // an option or a variable maps or binds the ranks
  std::string unknown;                 // an option that is not known here; "": none
  bool names_hosts = false;            // -H, --hostfile and their like
  std::optional<std::string> ranks;    // of -n
  std::optional<int> per_node;         // of -N
};

/// Reads mpirun's options, and its parameters in the environment (OMPI_MCA_…). What mpirun would refuse is `unknown`.
/// Throws Error (usage) if the number of ranks is none, or below 1.
[[nodiscard]] MpirunOptions read_mpirun_options(const std::vector<std::string>& words, char* const* environment);

/// Takes the number of ranks per node from NPROC_PER_NODE, torchrun's variable, if no option says it: -n on one host,
/// -N on several (`several`: a batch job, say). Returns what to tell the user; "": nothing. Throws Error (usage) if the
/// variable is no number, or if NNODES asks for hosts that no option names.
[[nodiscard]] std::string take_torchrun_variables(MpirunOptions& options, bool several);

}  // namespace tessera::jobs
