// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/launcher_environment.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace tessera {

namespace {

/// The number that a variable begins with ("8(x4)", as Slurm writes it, is 8); -1 if it is not set or holds none.
int number(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text >= '0' && *text <= '9' ? std::atoi(text) : -1;
}

struct Launcher {
  const char *size, *rank, *local_size;
};

// In order of trust: an MPI launcher that says 1 is right, whatever the batch system around it says.
constexpr Launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
    {"MPI_LOCALNRANKS", "PMIX_RANK", "MPI_LOCALNRANKS"},
    {"PALS_SIZE", "PALS_RANKID", "PALS_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_SIZE"},
    {"FLUX_JOB_SIZE", "FLUX_TASK_RANK", ""},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE"},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_NTASKS_PER_NODE"},
};

bool in_effect(const Launcher& launcher) {
  if (number(launcher.size) < 1) return false;
  const std::string_view name = launcher.size;
  if (name.starts_with("FLUX_")) return number("FLUX_TASK_RANK") >= 0;
  // A batch script and salloc's shell have SLURM_NTASKS too: only a step that srun started counts.
  if (name.starts_with("SLURM_"))
    return number("SLURM_PROCID") >= 0 && (std::getenv("SLURM_STEP_ID") || std::getenv("SLURM_STEPID"));
  return true;
}

}  // namespace

LauncherEnvironment launcher_environment() {
  const auto* found = std::find_if(std::begin(launchers), std::end(launchers), in_effect);
  if (found == std::end(launchers)) return {};
  const int rank = number(found->rank);
  return {.rank = std::max(0, rank >= 0 ? rank : number("PMIX_RANK")),
          .size = number(found->size),
          .local_size = std::max(0, number(found->local_size)),
          .size_variable = found->size};
}

}  // namespace tessera
