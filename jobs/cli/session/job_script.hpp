// SPDX-License-Identifier: Apache-2.0
#pragma once
// Batch scripts: the templates of jobs/templates with a cluster's figures and a run's arguments.

#include <string>
#include <vector>

namespace tessera::jobs {

/// What a job asks of the scheduler.
struct JobShape {
  std::string scheduler;                             // "slurm", "pbs", "lsf" or "flux"
  std::string launcher;                              // "srun", "jsrun" or "flux run"; "mpirun", by tessera launch
  std::string name = "tessera", partition, account;  // "": not given
  int nodes = 1, ranks_per_node = 1, cores_per_rank = 1, gpus_per_node = 0;
  bool one_thread_per_core = false;     // Slurm counts hardware threads as CPUs
  long time_limit = 0;                  // of the job, seconds, > 0
  std::vector<std::string> directives;  // further ones, without the scheduler's prefix: "--qos=high"
  std::string program;                  // path of tessera on the nodes
  std::vector<std::string> arguments;   // of `tessera train`
  std::vector<std::string> header;      // comment lines
};

/// The time in which the run saves its checkpoint before the job's limit, seconds: a tenth, at most ten minutes.
[[nodiscard]] long margin(const JobShape& job);

/// The script. Scheduler and launcher must fit (jobs/cli/commands/job_script.cpp checks them).
[[nodiscard]] std::string job_script(const JobShape& job);

}  // namespace tessera::jobs
