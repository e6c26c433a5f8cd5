// What launchers leave in the environment: N processes that do not find each other are noticed by it.
#include <cstdlib>

#include "runtime/comm/mpi/mpi.hpp"

namespace tessera::comm {

static int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

int launched_ranks(const char** variable) {
  // The MPI launchers' own words. If one of them says 1, a batch system's words around it mean something else.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PALS_SIZE", "MV2_COMM_WORLD_SIZE",
                           "JSM_NAMESPACE_SIZE"})
    if (number(name) > 0) {
      *variable = name;
      return number(name);
    }
  if (std::getenv("FLUX_TASK_RANK") && number("FLUX_JOB_SIZE") > 0) {
    *variable = "FLUX_JOB_SIZE";
    return number("FLUX_JOB_SIZE");
  }
  // Slurm: only inside a step that srun started; a batch script or salloc's shell has SLURM_NTASKS too.
  const bool in_step = (std::getenv("SLURM_STEP_ID") || std::getenv("SLURM_STEPID")) && std::getenv("SLURM_PROCID");
  if (in_step) {
    *variable = number("SLURM_STEP_NUM_TASKS") > 0 ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    if (number(*variable) > 0) return number(*variable);
  }
  *variable = "";
  return 1;
}

}  // namespace tessera::comm
