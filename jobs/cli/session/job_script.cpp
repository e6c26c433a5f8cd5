// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/job_script.hpp"

#include <algorithm>
#include <sstream>

#include "jobs/cli/session/batch_templates.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

/// A word as a shell reads it.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-./:=,@%+").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

/// Replaces the one occurrence of `what`. A template that lacks it is a bug.
void replace(std::string& text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) throw Error(ExitCode::internal, "no \"" + what + "\" in a template", "job-script", "");
  text.replace(at, what.size(), with);
}

/// ${NAME:-…} in the template becomes ${NAME:-value}.
void set_default(std::string& text, const std::string& name, const std::string& value) {
  const std::string start = "${" + name + ":-";
  const std::size_t at = text.find(start), end = text.find('}', at);
  if (at == std::string::npos) throw Error(ExitCode::internal, "no " + start + " in a template", "job-script", "");
  std::string plain;
  for (const char c : value)
    plain += (std::string_view("\\$`\"'} ").find(c) != std::string_view::npos ? "\\" : "") + std::string(1, c);
  text.replace(at, end - at, start + plain);
}

std::string clock(long seconds) { return strfmt("%02ld:%02ld:%02ld", seconds / 3600, seconds / 60 % 60, seconds % 60); }

std::vector<std::string> slurm_directives(const JobShape& job) {
  std::vector<std::string> all = {
      "--job-name=" + job.name,
      strfmt("--nodes=%d", job.nodes),
      strfmt("--ntasks-per-node=%d", job.ranks_per_node),
      strfmt("--cpus-per-task=%d", job.cores_per_rank),
  };
  // All GPUs of a node are visible to each of its ranks, which takes the one of its local rank.
  if (job.gpus_per_node > 0) all.push_back(strfmt("--gpus-per-node=%d", job.gpus_per_node));
  if (job.one_thread_per_core) all.emplace_back("--hint=nomultithread");
  if (!job.partition.empty()) all.push_back("--partition=" + job.partition);
  if (!job.account.empty()) all.push_back("--account=" + job.account);
  for (const std::string& line : {std::string("--exclusive"), std::string("--mem=0"), "--time=" + clock(job.time_limit),
                                  std::string("--requeue"), strfmt("--signal=B:USR1@%ld", margin(job)),
                                  std::string("--open-mode=append"), std::string("--output=%x-%j.log")})
    all.push_back(line);
  return all;
}

std::vector<std::string> pbs_directives(const JobShape& job) {
  std::string select = strfmt("-l select=%d:ncpus=%d:mpiprocs=%d:ompthreads=%d", job.nodes,
                              job.ranks_per_node * job.cores_per_rank, job.ranks_per_node, job.cores_per_rank);
  if (job.gpus_per_node > 0) select += strfmt(":ngpus=%d", job.gpus_per_node);
  std::vector<std::string> all = {"-N " + job.name, select, "-l place=scatter:excl",
                                  "-l walltime=" + clock(job.time_limit)};
  if (!job.partition.empty()) all.push_back("-q " + job.partition);
  if (!job.account.empty()) all.push_back("-A " + job.account);
  all.insert(all.end(), {"-j oe", "-k oed"});
  return all;
}

std::vector<std::string> lsf_directives(const JobShape& job) {
  std::vector<std::string> all = {"-J " + job.name};
  if (job.launcher == "jsrun") {
    all.push_back(strfmt("-nnodes %d", job.nodes));
  } else {
    all.push_back(strfmt("-n %d", job.nodes * job.ranks_per_node));
    all.push_back(strfmt("-R \"span[ptile=%d] affinity[core(%d)]\"", job.ranks_per_node, job.cores_per_rank));
    all.emplace_back("-x");
    if (job.gpus_per_node > 0) all.push_back(strfmt("-gpu \"num=%d\"", job.gpus_per_node));
  }
  const long minutes = (job.time_limit + 59) / 60;
  all.push_back(strfmt("-W %ld:%02ld", minutes / 60, minutes % 60));
  if (!job.partition.empty()) all.push_back("-q " + job.partition);
  if (!job.account.empty()) all.push_back("-P " + job.account);
  all.insert(all.end(), {"-r", "-Q \"75\"", "-o " + job.name + "-%J.log"});
  return all;
}

std::vector<std::string> flux_directives(const JobShape& job) {
  std::vector<std::string> all = {"--job-name=" + job.name, strfmt("--nodes=%d", job.nodes), "--exclusive",
                                  strfmt("--time-limit=%lds", job.time_limit)};
  if (!job.partition.empty()) all.push_back("--queue=" + job.partition);
  if (!job.account.empty()) all.push_back("--bank=" + job.account);
  all.push_back("--output=" + job.name + "-{{id}}.log");
  return all;
}

struct Scheduler {
  const char *name, *prefix;
  const char* text;
  std::vector<std::string> (*directives)(const JobShape&);
};

const Scheduler& find(const std::string& name) {
  static const Scheduler all[] = {{"slurm", "#SBATCH ", slurm_template, slurm_directives},
                                  {"pbs", "#PBS ", pbs_template, pbs_directives},
                                  {"lsf", "#BSUB ", lsf_template, lsf_directives},
                                  {"flux", "#flux: ", flux_template, flux_directives}};
  return *std::ranges::find_if(all, [&](const Scheduler& one) { return name == one.name; });
}

/// The template without its comments at the start and its directives, which are replaced.
std::string with_head(const JobShape& job, const Scheduler& scheduler) {
  std::ostringstream out;
  out << "#!/bin/bash\n";
  for (std::string line : job.header) {
    std::ranges::replace_if(
        line, [](unsigned char c) { return c < ' '; }, ' ');  // a new line would end the comment
    out << "# " << line << "\n";
  }
  std::vector<std::string> directives = scheduler.directives(job);
  directives.insert(directives.end(), job.directives.begin(), job.directives.end());
  for (const std::string& line : directives) out << scheduler.prefix << line << "\n";
  out << "\n# Load here what tessera and MPI need on the nodes (module load …).\n";
  std::istringstream in(scheduler.text);
  bool body = false;
  for (std::string line; std::getline(in, line);) {
    body = body || (!line.empty() && !line.starts_with('#'));
    if (body) out << line << "\n";
  }
  return out.str();
}

}  // namespace

long margin(const JobShape& job) { return std::clamp(job.time_limit / 10, 1L, 600L); }

std::string job_script(const JobShape& job) {
  std::string text = with_head(job, find(job.scheduler));
  set_default(text, "TESSERA", job.program);
  std::string arguments;
  for (const std::string& word : job.arguments) arguments += " " + quoted(word);
  replace(text, "set -- config.yaml", "set --" + arguments);
  const bool figures = job.scheduler == "lsf" || job.scheduler == "flux";  // the others tell the script
  if (job.scheduler == "slurm" || job.scheduler == "lsf") set_default(text, "LAUNCHER", job.launcher);
  if (job.scheduler != "slurm") set_default(text, "TIME_LIMIT", strfmt("%lds", job.time_limit - margin(job)));
  if (figures) {
    set_default(text, "RANKS", std::to_string(job.nodes * job.ranks_per_node));
    set_default(text, "CORES", std::to_string(job.cores_per_rank));
    set_default(text, "GPUS_PER_RANK", std::to_string(job.gpus_per_node / job.ranks_per_node));
  }
  if (job.scheduler == "lsf") set_default(text, "RANKS_PER_NODE", std::to_string(job.ranks_per_node));
  if (job.scheduler == "flux") {
    set_default(text, "NODES", std::to_string(job.nodes));
    set_default(text, "JOB_NAME", job.name);  // the others tell the script
  }
  return text;
}

}  // namespace tessera::jobs
