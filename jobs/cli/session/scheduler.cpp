// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/scheduler.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "jobs/cli/options/table.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* give_figures = "Give --cores_per_node N and --gpus_per_node N";

[[noreturn]] void cannot_ask(const std::string& command, const std::string& why) {
  throw Error(ExitCode::usage, "the scheduler does not say what its nodes have: " + why, command, give_figures);
}

struct Answer {
  int failed = 0;  // errno: it was not started
  int status = 0;  // of waitpid
  std::string text, errors;
};

/// Reads both pipes until they end, each into its text, and closes them.
void read_all(pollfd (&pipes)[2], std::string* (&texts)[2]) {
  for (int left = 2; left > 0;) {
    if (::poll(pipes, 2, -1) < 0) continue;  // EINTR
    for (int i = 0; i < 2; ++i) {
      if (pipes[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(pipes[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        ::close(pipes[i].fd);
        pipes[i] = {.fd = -1, .events = 0, .revents = 0};  // poll leaves it out
        --left;
      }
    }
  }
}

/// Runs a program of the PATH.
Answer answer_of(const std::vector<std::string>& command) {
  int text[2], errors[2];
  if (::pipe2(text, O_CLOEXEC) != 0 || ::pipe2(errors, O_CLOEXEC) != 0) return {.failed = errno};
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t outputs;
  ::posix_spawn_file_actions_init(&outputs);
  ::posix_spawn_file_actions_adddup2(&outputs, text[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&outputs, errors[1], STDERR_FILENO);
  pid_t child = 0;
  Answer answer;
  answer.failed = ::posix_spawnp(&child, words[0], &outputs, nullptr, words.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&outputs);
  ::close(text[1]);
  ::close(errors[1]);
  pollfd pipes[] = {{.fd = text[0], .events = POLLIN, .revents = 0}, {.fd = errors[0], .events = POLLIN, .revents = 0}};
  std::string* texts[] = {&answer.text, &answer.errors};
  read_all(pipes, texts);
  while (answer.failed == 0 && ::waitpid(child, &answer.status, 0) < 0 && errno == EINTR) {}
  return answer;
}

/// What the program prints on its standard output. Throws Error (usage) with the first line of its errors if it fails.
std::string output_of(const std::vector<std::string>& command) {
  const Answer answer = answer_of(command);
  if (answer.failed != 0) cannot_ask(command[0], std::strerror(answer.failed));
  if (answer.status == 0) return answer.text;
  const std::string& why = answer.errors.empty() ? answer.text : answer.errors;
  cannot_ask(command[0], why.empty() ? "it fails and does not say why" : why.substr(0, why.find('\n')));
}

/// Adds nodes of one shape to those seen before. Throws Error (usage) if they differ.
void add(NodeShape& all, const NodeShape& more, const std::string& what_to_do = give_figures) {
  if (more.count == 0) return;
  const bool first = all.count == 0;
  if (!first && (all.cores != more.cores || all.gpus != more.gpus || all.sockets != more.sockets))
    throw Error(ExitCode::usage,
                strfmt("the nodes of %s differ: %d cores and %d GPUs, %d cores and %d GPUs", more.where.c_str(),
                       all.cores, all.gpus.value_or(0), more.cores, more.gpus.value_or(0)),
                "job-script", what_to_do);
  const int count = all.count + more.count;
  all = more;
  all.count = count;
}

std::vector<std::string> lines_of(const std::string& text) { return split_words(text, '\n'); }

int number(const std::string& text) { return std::atoi(text.c_str()); }

/// GPUs in a list of generic resources: "gpu:a100:4(S:0-1),nvme:1" has 4.
int gpus_in(const std::string& resources) {
  int gpus = 0;
  for (const std::string& item : split_words(resources, ',')) {
    const std::string plain = item.substr(0, item.find('('));
    const std::vector<std::string> parts = split_words(plain, ':');
    if (parts.size() >= 2 && parts[0] == "gpu") gpus += number(parts.back());
  }
  return gpus;
}

}  // namespace

NodeShape slurm_nodes(const std::string& sinfo, const std::string& partition) {
  NodeShape all;
  for (const std::string& line : lines_of(sinfo)) {
    std::vector<std::string> fields = split_words(line, '|');  // %P|%D|%c|%X|%Y|%Z|%G
    if (fields.size() != 7) continue;
    const bool is_default = fields[0].ends_with('*');
    if (is_default) fields[0].pop_back();
    if (partition.empty() ? !is_default : fields[0] != partition) continue;
    for (std::size_t i = 1; i < 6; ++i)  // "4+": nodes that differ, in one row
      if (fields[i].find_first_not_of("0123456789") != std::string::npos)
        cannot_ask("sinfo",
                   strfmt("partition %s has \"%s\" where a number is expected", fields[0].c_str(), fields[i].c_str()));
    const int cpus = number(fields[2]), cores = number(fields[3]) * number(fields[4]);
    add(all,
        {.count = number(fields[1]),
         .cores = std::min(cpus, cores),
         .sockets = number(fields[3]),
         .simultaneous_threads = number(fields[5]) > 1 && cpus > cores,
         .gpus = gpus_in(fields[6]),
         .where = "partition " + fields[0] + " (sinfo)"},
        std::string("Name a --partition of equal nodes. ") + give_figures);
  }
  if (all.count == 0)
    cannot_ask("sinfo", partition.empty() ? "Slurm has no default partition: name a --partition"
                                          : "there is no partition " + partition);
  return all;
}

NodeShape pbs_nodes(const std::string& pbsnodes_json) {
  const auto json = nlohmann::json::parse(pbsnodes_json, nullptr, false);
  NodeShape all;
  if (json.is_object() && json.contains("nodes"))
    for (const auto& node : json["nodes"]) {
      const auto resources = node.value("resources_available", nlohmann::json::object());
      const auto count = [&](const char* name) {  // PBS writes numbers as numbers, or as strings
        const auto found = resources.find(name);
        return found == resources.end()     ? 0
               : found->is_number_integer() ? found->get<int>()
               : found->is_string()         ? number(found->get<std::string>())
                                            : 0;
      };
      add(all, {.count = 1, .cores = count("ncpus"), .gpus = count("ngpus"), .where = "all nodes (pbsnodes)"});
    }
  if (all.cores == 0) cannot_ask("pbsnodes -a -F json", "no node in its answer");
  return all;
}

NodeShape lsf_nodes(const std::string& lshosts) {
  NodeShape all;
  for (const std::string& line : lines_of(lshosts)) {
    std::istringstream in(line);
    std::string host, type, model, factor, cpus;
    // HOST_NAME type model cpuf ncpus …; clients have "-" cpus
    if (!(in >> host >> type >> model >> factor >> cpus) || number(cpus) == 0) continue;
    add(all, {.count = 1, .cores = number(cpus), .where = "all hosts (lshosts)"});
  }
  if (all.count == 0) cannot_ask("lshosts -w", "no host in its answer");
  return all;
}

NodeShape flux_nodes(const std::string& resource_list) {
  NodeShape all;
  for (const std::string& line : lines_of(resource_list)) {
    std::istringstream in(line);
    int nodes = 0, cores = 0, gpus = 0;
    if (!(in >> nodes >> cores >> gpus) || nodes == 0) continue;
    if (cores % nodes != 0 || gpus % nodes != 0)
      cannot_ask("flux resource list", strfmt("%d nodes with %d cores and %d GPUs differ", nodes, cores, gpus));
    add(all, {.count = nodes, .cores = cores / nodes, .gpus = gpus / nodes, .where = "all nodes (flux resource list)"});
  }
  if (all.count == 0) cannot_ask("flux resource list", "no node in its answer");
  return all;
}

NodeShape node_shape(const std::string& scheduler, const std::string& partition) {
  if (scheduler == "slurm")
    // --exact: nodes that differ are rows of their own.
    return slurm_nodes(output_of({"sinfo", "--noheader", "--exact", "--format=%P|%D|%c|%X|%Y|%Z|%G"}), partition);
  if (scheduler == "pbs") return pbs_nodes(output_of({"pbsnodes", "-a", "-F", "json"}));
  if (scheduler == "lsf") return lsf_nodes(output_of({"lshosts", "-w"}));
  return flux_nodes(output_of({"flux", "resource", "list", "-s", "up", "-no", "{nnodes} {ncores} {ngpus}"}));
}

bool srun_has_pmix() {
  // Releases print the list on different outputs; its names are words of their own.
  const Answer answer = answer_of({"srun", "--mpi=list"});
  if (answer.failed != 0)
    throw Error(ExitCode::usage,
                std::string("whether srun has PMIx for the ranks is not known: ") + std::strerror(answer.failed),
                "srun", "Give --launcher srun or --launcher mpirun");
  std::istringstream words(answer.text + "\n" + answer.errors);
  for (std::string word; words >> word;)
    if (word == "pmix" || word.starts_with("pmix_")) return true;
  return false;
}

}  // namespace tessera::jobs
