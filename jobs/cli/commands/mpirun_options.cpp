// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/mpirun_options.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "jobs/cli/options/values.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

enum class Effect : unsigned char { none, binds, hosts, ranks, per_node, parameter, output };

struct MpirunOption {
  std::string_view name;  // without dashes: mpirun takes one or two
  int values = 0;
  Effect effect = Effect::none;
};

constexpr auto known_options = std::to_array<MpirunOption>({
    {"n", 1, Effect::ranks},
    {"np", 1, Effect::ranks},
    {"c", 1, Effect::ranks},
    {"N", 1, Effect::per_node},
    {"npernode", 1, Effect::per_node},
    {"H", 1, Effect::hosts},
    {"host", 1, Effect::hosts},
    {"hostfile", 1, Effect::hosts},
    {"machinefile", 1, Effect::hosts},
    {"default-hostfile", 1, Effect::hosts},
    {"mca", 2, Effect::parameter},
    {"gmca", 2, Effect::parameter},
    {"bind-to", 1, Effect::binds},
    {"map-by", 1, Effect::binds},
    {"rank-by", 1, Effect::binds},
    {"cpu-set", 1, Effect::binds},
    {"cpu-list", 1, Effect::binds},
    {"rankfile", 1, Effect::binds},
    {"rf", 1, Effect::binds},
    {"ppr", 1, Effect::binds},
    {"npersocket", 1, Effect::binds},
    {"pernode", 0, Effect::binds},
    {"cpus-per-proc", 1, Effect::binds},
    {"cpus-per-rank", 1, Effect::binds},
    {"use-hwthread-cpus", 0, Effect::binds},
    {"bind-to-core", 0, Effect::binds},
    {"bind-to-socket", 0, Effect::binds},
    {"bind-to-none", 0, Effect::binds},
    {"bycore", 0, Effect::binds},
    {"byslot", 0, Effect::binds},
    {"bynode", 0, Effect::binds},
    {"bysocket", 0, Effect::binds},
    {"allow-run-as-root", 0},
    {"oversubscribe", 0},
    {"nooversubscribe", 0},
    {"x", 1},
    {"wdir", 1},
    {"wd", 1},
    {"path", 1},
    {"prefix", 1},
    {"noprefix", 0},
    {"timeout", 1},
    {"q", 0},
    {"quiet", 0},
    {"report-bindings", 0, Effect::output},
    {"display-map", 0, Effect::output},
    {"display-devel-map", 0, Effect::output},
    {"display-allocation", 0, Effect::output},
    {"tag-output", 0, Effect::output},
    {"timestamp-output", 0, Effect::output},
    {"merge-stderr-to-stdout", 0, Effect::output},
    {"output-filename", 1, Effect::output},
    {"stdin", 1, Effect::output},
});

/// True of the MCA parameters that say where ranks run, and not only whether they may share slots.
bool binds(std::string_view parameter) {
  if (parameter.ends_with("oversubscribe")) return false;
  if (parameter.starts_with("rmaps_")) return true;
  return parameter.starts_with("hwloc_base_") &&
         std::ranges::any_of(std::array{"binding", "cpu", "slot_list"},
                             [&](const char* word) { return parameter.find(word) != std::string_view::npos; });
}

const MpirunOption* find_mpirun_option(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return nullptr;
  const std::string_view name = std::string_view(word).substr(word[1] == '-' ? 2 : 1);
  const auto* found = std::ranges::find(known_options, name, &MpirunOption::name);
  return found == known_options.end() ? nullptr : found;
}

/// The number of ranks that a text asks for; none if it is no number of at least 1.
std::optional<int> rank_count(const std::string& text) {
  const std::optional<std::int64_t> count = parse_integer(text);
  return count && *count >= 1 && *count <= 1 << 20 ? std::optional<int>(static_cast<int>(*count)) : std::nullopt;
}

}  // namespace

MpirunOptions read_mpirun_options(const std::vector<std::string>& words, char* const* environment) {
  MpirunOptions options;
  for (char* const* variable = environment; variable != nullptr && *variable != nullptr; ++variable) {
    constexpr std::string_view prefix = "OMPI_MCA_";
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (name.starts_with(prefix) && binds(name.substr(prefix.size()))) options.binds = true;
    if (name == "OMPI_MCA_orte_default_hostfile") options.names_hosts = true;
  }
  for (std::size_t i = 0; i < words.size();) {
    const MpirunOption* option = find_mpirun_option(words[i]);
    if (option == nullptr || i + static_cast<std::size_t>(option->values) >= words.size()) {
      options.unknown = words[i];
      options.given.insert(options.given.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      return options;
    }
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i), end = begin + 1 + option->values;
    const std::string value = option->values > 0 ? words[i + 1] : "";
    i += 1 + static_cast<std::size_t>(option->values);
    const bool counts = option->effect == Effect::ranks || option->effect == Effect::per_node;
    if (counts && !rank_count(value))  // mpirun takes 0 for a rank on each slot, and says nothing
      throw Error(ExitCode::usage, "launch: " + *begin + " " + value + ": expected a number of ranks, at least 1",
                  "command line", "Give a number, or leave it out for a rank on each slot of the hosts");
    if (option->effect == Effect::per_node) {
      options.per_node = rank_count(value);
      continue;
    }
    options.given.insert(options.given.end(), begin, end);
    if (option->effect != Effect::output) options.for_query.insert(options.for_query.end(), begin, end);
    if (option->effect == Effect::ranks) options.ranks = value;
    options.names_hosts = options.names_hosts || option->effect == Effect::hosts;
    options.binds =
        options.binds || option->effect == Effect::binds || (option->effect == Effect::parameter && binds(value));
  }
  return options;
}

std::string take_torchrun_variables(MpirunOptions& options, bool several) {
  const bool many_hosts = several || options.names_hosts;
  if (const char* nodes = std::getenv("NNODES");
      nodes != nullptr && !many_hosts && parse_integer(nodes).value_or(1) > 1)
    throw Error(ExitCode::usage,
                std::string("launch: NNODES=") + nodes + " is torchrun's, which is started on every node",
                "environment",
                "Start tessera launch once, with the hosts: tessera launch -H node1:8,node2:8 -n 16 -- train run.yaml");
  for (const char* name : {"NPROC_PER_NODE", "PET_NPROC_PER_NODE"}) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    const std::string said = std::string(name) + "=" + text;
    const std::optional<int> count = rank_count(text);
    if (!count)
      throw Error(ExitCode::usage, "launch: " + said + ": expected the number of ranks of a node", "environment",
                  "Give a number, or unset it and give -n");
    const std::string asked = options.ranks      ? "-n " + *options.ranks
                              : options.per_node ? "-N " + std::to_string(*options.per_node)
                                                 : "";
    if (options.binds || !options.unknown.empty() || !asked.empty()) {
      if (options.ranks == std::to_string(*count) || options.per_node == count) return "";
      return said + " is not read: " +
             (asked.empty() ? "other options say where the ranks run" : asked + " says how many ranks there are");
    }
    if (many_hosts) {
      options.per_node = count;
    } else {
      options.ranks = std::to_string(*count);
      for (auto* words : {&options.given, &options.for_query}) words->insert(words->end(), {"-n", *options.ranks});
    }
    return "";
  }
  return "";
}

}  // namespace tessera::jobs
