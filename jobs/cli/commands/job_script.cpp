// SPDX-License-Identifier: Apache-2.0
// `tessera job-script SCHEDULER … -- train …`: a batch script with the figures of this cluster.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/job_script.hpp"
#include "jobs/cli/session/scheduler.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* usage = "tessera job-script slurm|pbs|lsf|flux --nodes 2 -- train run.yaml";

std::string scheduler_of(const Invocation& invocation) {
  std::string name = invocation.operands.empty() ? "" : invocation.operands[0];
  for (const char* known : {"slurm", "pbs", "lsf", "flux"})
    if (name == known) return name;
  throw Error(ExitCode::usage, name.empty() ? "job-script needs a scheduler" : "job-script: no scheduler " + name,
              "command line", usage);
}

/// The arguments of `tessera train`, checked as `tessera config check` does. Throws Error as it does.
std::vector<std::string> checked_arguments(const std::vector<std::string>& command) {
  const CommandSpec* spec = command.empty() ? nullptr : find_command(command[0]);
  if (spec == nullptr || spec->bit != for_train)
    throw Error(ExitCode::usage, "job-script: no command train, sft or pt after --", "command line", usage);
  const Invocation parsed = parse_command_line(command, ::environ, check_options);
  check_options(parsed.options);
  std::vector<std::string> arguments(command.begin() + 1, command.end());
  if (!parsed.stage.empty()) arguments.insert(arguments.end(), {"--stage", parsed.stage});
  return arguments;
}

std::string launcher_of(const Options& options, const std::string& scheduler) {
  std::string wanted = options.text("launcher");
  if (wanted == "auto") {
    if (scheduler == "flux") return "flux run";
    return scheduler == "slurm" && srun_has_pmix() ? "srun" : "mpirun";
  }
  const bool fits = wanted == "mpirun" ? scheduler != "flux" : scheduler == (wanted == "srun" ? "slurm" : "lsf");
  if (!fits) throw options.refuse("launcher", wanted + " does not start ranks under " + scheduler, "Use auto");
  return wanted;
}

/// A scheduler reads the name in a line of its own, by rules of its own: names that all of them take as they are.
std::string job_name_of(const Options& options) {
  std::string name = options.text("job_name");
  const bool plain = std::ranges::all_of(
      name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; });
  if (name.empty() || !plain)
    throw options.refuse("job_name", "\"" + name + "\": a job's name has letters, digits, '.', '_' and '-' alone",
                         "Choose another");
  return name;
}

/// The nodes, by the options where given, asked of the scheduler otherwise.
NodeShape nodes_of(const Options& options, const std::string& scheduler) {
  NodeShape shape;
  if (!options.has("cores_per_node") || !options.has("gpus_per_node")) {
    if (scheduler == "lsf" && options.has("cores_per_node")) shape.where = "the command line";
    else shape = node_shape(scheduler, options.text("partition"));
  } else {
    shape.where = "the command line";
  }
  if (const auto cores = options.optional_integer("cores_per_node")) {
    if (shape.cores != 0 && *cores > shape.cores)
      throw options.refuse("cores_per_node", strfmt("the nodes have %d cores: %s", shape.cores, shape.where.c_str()),
                           "Lower it");
    shape.cores = static_cast<int>(*cores);
  }
  if (const auto gpus = options.optional_integer("gpus_per_node")) shape.gpus = static_cast<int>(*gpus);
  return shape;
}

int ranks_of(const Options& options, const NodeShape& nodes) {
  const int gpus = nodes.gpus.value_or(0);
  const auto given = options.optional_integer("ranks_per_node");
  const int ranks = given ? static_cast<int>(*given) : gpus > 0 ? gpus : nodes.sockets;
  if (ranks == 0)
    throw Error(ExitCode::usage, "the sockets of a node are not known, and it has no GPUs", nodes.where,
                "Give --ranks_per_node N: one a socket, or one a NUMA domain");
  if (ranks > nodes.cores)
    throw options.refuse("ranks_per_node", strfmt("%d ranks on %d cores", ranks, nodes.cores), "Lower it");
  if (gpus % ranks != 0)
    throw options.refuse("ranks_per_node", strfmt("%d ranks on %d GPUs", ranks, gpus),
                         "Give as many ranks as GPUs, or --gpus_per_node");
  return ranks;
}

}  // namespace

void job_script_command(const Call& call) {
  const Options& options = call.options();
  JobShape job;
  job.scheduler = scheduler_of(call.invocation);
  job.arguments = checked_arguments(call.invocation.ranks_command);
  const NodeShape nodes = nodes_of(options, job.scheduler);
  job.nodes = static_cast<int>(options.integer("nodes"));
  if (nodes.count != 0 && job.nodes > nodes.count)
    throw options.refuse("nodes", strfmt("there are %d: %s", nodes.count, nodes.where.c_str()),
                         job.scheduler == "slurm" ? "Lower it, or name another --partition" : "Lower it");
  job.launcher = launcher_of(options, job.scheduler);
  job.ranks_per_node = ranks_of(options, nodes);
  job.cores_per_rank = nodes.cores / job.ranks_per_node;
  job.gpus_per_node = nodes.gpus.value_or(0);
  job.one_thread_per_core = nodes.simultaneous_threads;
  job.name = job_name_of(options);
  job.partition = options.text("partition");
  job.account = options.text("account");
  job.directives = options.list("directive");
  job.time_limit = options.has("time_limit") ? static_cast<long>(std::ceil(options.seconds("time_limit"))) : 4 * 3600;
  job.program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string line;
  for (const std::string& word : call.command_line) line += (line.empty() ? "" : " ") + word;
  job.header = {"Written by: " + line,
                strfmt("Nodes of %d cores and %d GPUs, by %s; ranks are started by %s.", nodes.cores, job.gpus_per_node,
                       nodes.where.c_str(), job.launcher.c_str())};
  if (job.scheduler == "slurm") job.header.emplace_back("Submit: sbatch FILE [other arguments of tessera train]");
  if (job.scheduler == "pbs")
    job.header.emplace_back("Submit: SCRIPT=$PWD/FILE qsub -v SCRIPT FILE (SCRIPT lets it submit itself again)");
  if (job.scheduler == "lsf") job.header.emplace_back("Submit: bsub < FILE");
  if (job.scheduler == "flux") job.header.emplace_back("Submit: flux batch FILE [other arguments of tessera train]");
  const std::string script = job_script(job);
  std::fputs(script.c_str(), stdout);
}

}  // namespace tessera::jobs
