// Variables of Open MPI, PMI, Slurm and Flux.
#include "jobs/cli/session/launcher.hpp"

#include <cstdlib>
#include <initializer_list>

namespace tessera::jobs {

namespace {

/// The first variable that holds a number; -1 if none does. "8(x4)" of Slurm reads as 8.
int first_number(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const char* text = std::getenv(variable);
    if (text != nullptr && *text >= '0' && *text <= '9') return std::atoi(text);
  }
  return -1;
}

bool in_slurm_step() { return std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("SLURM_PROCID") != nullptr; }

}  // namespace

int launcher_rank() {
  int rank = first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK"});
  if (rank < 0 && in_slurm_step()) rank = first_number({"SLURM_PROCID"});
  return rank < 0 ? 0 : rank;
}

int launcher_size() {
  int size = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "FLUX_JOB_SIZE"});
  if (size < 0 && in_slurm_step()) size = first_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  return size < 1 ? 1 : size;
}

int launcher_local_size() {
  int size = first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  if (size < 0 && in_slurm_step()) size = first_number({"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"});
  return size < 0 ? 0 : size;
}

}  // namespace tessera::jobs
