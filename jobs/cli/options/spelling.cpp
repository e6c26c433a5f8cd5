// SPDX-License-Identifier: Apache-2.0
// Names of options and commands: look-up, spelling, and suggestions for a wrong one.
#include <algorithm>
#include <cctype>
#include <map>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

const char* name_of(Type type) {
  static constexpr const char* names[] = {"true|false", "integer", "number", "text",  "word", "text",
                                          "list",       "size",    "time",   "range", "steps"};
  return names[static_cast<int>(type)];
}

std::vector<std::string> split_words(std::string_view words, char separator) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  while (begin <= words.size()) {
    const std::size_t end = std::min(words.find(separator, begin), words.size());
    if (end > begin) result.emplace_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

std::vector<std::string> split_list(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  return split_words(spaced, ' ');
}

std::string alternatives(std::string_view values) {
  const std::vector<std::string> words = split_words(values, '|');
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

std::string canonical_spelling(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

namespace {

/// Names are case-sensitive, as in other tools: "--Model" is unknown.
std::string dashes_as_underscores(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

std::map<std::string, const OptionSpec*, std::less<>> make_index() {
  std::map<std::string, const OptionSpec*, std::less<>> index;
  for (const OptionSpec& spec : option_table()) {
    index.emplace(spec.name, &spec);
    for (const std::string& alias : split_words(spec.aliases, ' ')) index.emplace(alias, &spec);
  }
  return index;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

const OptionSpec* find_option(std::string_view name) {
  static const auto index = make_index();
  const auto found = index.find(dashes_as_underscores(name));
  return found == index.end() ? nullptr : found->second;
}

std::vector<std::string> option_groups() {
  std::vector<std::string> groups;
  for (const OptionSpec& spec : option_table()) {
    if (std::find(groups.begin(), groups.end(), spec.group) == groups.end()) groups.emplace_back(spec.group);
  }
  return groups;
}

std::vector<std::string> nearest(const std::string& word, const std::vector<std::string>& names) {
  const std::string wanted = canonical_spelling(word);
  std::vector<std::pair<double, std::string>> scored;
  for (const std::string& name : names) {
    double score = static_cast<double>(edit_distance(wanted, name));
    // A name that contains the other is near, whatever its length.
    const bool inside = wanted.size() >= 3 && (name.find(wanted) != std::string::npos ||
                                               (name.size() >= 3 && wanted.find(name) != std::string::npos));
    if (inside) score = std::min(score, 2.5);
    if (score <= std::max(2.5, 0.5 * static_cast<double>(wanted.size()))) scored.emplace_back(score, name);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (const auto& [score, name] : scored) {
    if (result.size() < 3) result.push_back(name);
  }
  return result;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string> near = nearest(word, names);
  if (near.empty()) return "";
  std::string text = "Did you mean " + near[0];
  for (std::size_t i = 1; i < near.size(); ++i) text += (i + 1 == near.size() ? " or " : ", ") + near[i];
  return text + "?";
}

std::vector<std::string> option_names(unsigned commands) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & commands) == 0) continue;
    names.emplace_back(spec.name);
    for (std::string& alias : split_words(spec.aliases, ' ')) names.push_back(std::move(alias));
  }
  return names;
}

std::span<const CommandSpec> command_table() {
  static const CommandSpec commands[] = {
      {"train", for_train, "[CONFIG.yaml|json ...]",
       "train a model (also: pt, sft, rlhf, which are train with that --stage)"},
      {"plan", for_plan, "[CONFIG.yaml|json ...]", "memory, traffic and FLOPs of a run, without running it"},
      {"generate", for_generate, "[CONFIG.yaml|json ...]", "continue prompts with a model (also: infer)"},
      {"eval", for_eval, "[CONFIG.yaml|json ...]", "loss, perplexity and accuracy of a model on a dataset"},
      {"convert", for_convert, "[IN OUT] [CONFIG.yaml|json ...]",
       "convert a checkpoint to a Hugging Face model directory, or back; at most 256 MiB of memory per rank (also: "
       "export)"},
      {"inspect", for_inspect, "PATH ...",
       "print what is in a checkpoint, an HDF5 or safetensors file, an index, or a token file"},
      {"report", for_report, "DIR ...",
       "write report.html of a run, or compare several, as one file to open in a browser"},
      {"checkpoint", for_checkpoint, "verify PATH ... | diff A B",
       "verify a checkpoint's checksums, or compare two checkpoints"},
      {"bench", for_bench,
       "gemm|kernels|attention|collectives|dequantize|step|strategies|compression|io|scratch|convert|generate|"
       "tokenizer "
       "[CONFIG.yaml|json ...]",
       "measure this machine, and a training step or generation on it"},
      {"tokenize", for_tokenize, "[CONFIG.yaml|json ...]", "convert text files to a token file"},
      {"launch", for_launch, "[mpirun's options] -- COMMAND [operands] [--options]",
       "run a command with mpirun; SIGTERM, SIGHUP and Ctrl-C let a training run save a checkpoint first"},
      {"job-script", for_job_script, "slurm|pbs|lsf|flux [--options] -- train [operands] [--options]",
       "print a batch script for this cluster, which saves before the time limit, starts again and continues"},
      {"doctor", for_doctor, "", "print what the program was built with and what it finds on this machine"},
      {"config", for_config, "show|check|explain [CONFIG.yaml|json ...]",
       "print every option's value and its source, or what each key of a file does"},
      {"completion", for_completion, "bash|zsh|fish", "print a completion script for the shell"},
  };
  return commands;
}

std::string command_names() {
  std::string names;
  for (const CommandSpec& command : command_table()) names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

bool is_stage_command(std::string_view name) {
  const std::vector<std::string> types = split_words(find_option("rlhf_type")->values, '|');
  return name == "sft" || name == "pt" || name == "rlhf" || std::ranges::find(types, name) != types.end();
}

std::string stage_of(std::string_view command) {
  return std::string(command == "sft" || command == "pt" ? command : std::string_view("rlhf"));
}

const CommandSpec* find_command(std::string_view name) {
  for (const CommandSpec& command : command_table()) {
    const bool by_stage = command.bit == for_train && is_stage_command(name);
    const bool by_swift =
        (name == "infer" && command.bit == for_generate) || (name == "export" && command.bit == for_convert);
    if (name == command.name || by_stage || by_swift) return &command;
  }
  return nullptr;
}

}  // namespace tessera::jobs
