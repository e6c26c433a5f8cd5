// SPDX-License-Identifier: Apache-2.0
// Parses the command line: the command, its operands, and all sources of options in order of precedence.
#include <algorithm>
#include <boost/program_options.hpp>

#include "io/file/file.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/options/unsupported.hpp"

namespace tessera::jobs {

namespace po = boost::program_options;

namespace {

std::string command_hint(const std::string& word) {
  std::string instead = unsupported_command(word);
  if (!instead.empty()) return instead;
  std::vector<std::string> names;
  for (const CommandSpec& command : command_table()) names.emplace_back(command.name);
  const std::string near = suggestion(word, names);
  return near.empty() ? "Commands: " + command_names() : near;
}

po::options_description description() {
  po::options_description result;
  for (const OptionSpec& spec : option_table()) {
    result.add_options()(spec.name, po::value<std::vector<std::string>>()->composing(), spec.help);
  }
  result.add_options()("operand", po::value<std::vector<std::string>>());
  return result;
}

/// Values by option name; operands under "operand".
po::variables_map parse_tokens(const std::vector<std::string>& tokens) {
  const po::options_description known = description();
  po::positional_options_description operands;
  operands.add("operand", -1);
  po::variables_map map;
  try {
    const auto style = po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent;
    po::store(po::command_line_parser(tokens).options(known).positional(operands).style(style).run(), map);
  } catch (const po::error& error) { throw Error(ExitCode::usage, error.what(), "command line", "See --help"); }
  return map;
}

/// Where each value of an option is among the canonical arguments.
std::vector<int> positions_of(const std::string& name, const std::vector<std::string>& tokens) {
  std::vector<int> positions;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i].starts_with("--" + name + "=")) positions.push_back(static_cast<int>(i));
  return positions;
}

bool takes_subcommand(const std::string& command) {
  return command == "bench" || command == "config" || command == "completion" || command == "checkpoint" ||
         command == "job-script";
}

/// True if operands are files to work on, not configuration files.
bool takes_path_operands(const std::string& command) {
  return command == "inspect" || command == "checkpoint" || command == "report";
}

/// convert IN OUT: operands that are not configuration files.
void take_convert_operands(Options& options, std::vector<std::string>& operands) {
  std::vector<std::string> paths, files;
  for (const std::string& operand : operands) {
    const bool config = operand.ends_with(".yaml") || operand.ends_with(".yml") || operand.ends_with(".json");
    (config ? files : paths).push_back(operand);
  }
  operands = std::move(files);
  if (paths.size() > 2)
    throw Error(ExitCode::usage, "unexpected \"" + paths[2] + "\"", "command line",
                "tessera convert IN OUT [--dtype bf16]");
  const Source source{precedence::command_line, "command line"};
  if (!paths.empty()) options.assign("in", {paths[0]}, source);
  if (paths.size() > 1) options.assign("out", {paths[1]}, source);
}

void take_operands(Invocation& result, std::vector<std::string> operands) {
  std::size_t next = 0;
  if (result.command == "convert") take_convert_operands(result.options, operands);
  if (takes_subcommand(result.command) && next < operands.size()) result.operands.push_back(operands[next++]);
  if (takes_path_operands(result.command)) {
    result.operands.insert(result.operands.end(), operands.begin() + static_cast<std::ptrdiff_t>(next), operands.end());
    return;
  }
  if (next < operands.size() && (result.command == "completion" || result.command == "doctor" ||
                                 result.command == "job-script" || result.command.empty())) {
    throw Error(ExitCode::usage, "unexpected \"" + operands[next] + "\"", "command line",
                "See tessera " + result.command + " --help");
  }
  for (; next < operands.size(); ++next) {
    if (!io::exists(operands[next])) {
      throw Error(ExitCode::data, "no configuration file " + operands[next], "command line",
                  "Give a YAML or JSON file; options begin with --");
    }
    result.options.read_file(operands[next]);
  }
}

/// Assigns an option of the command line; a refused one is kept for resolve().
void assign_from(Options& options, const std::string& name, std::vector<std::string> items,
                 std::vector<int> positions) {
  try {
    options.assign(name, std::move(items), {precedence::command_line, "command line"}, std::move(positions));
  } catch (const RefusedOption& refusal) { options.refuse_later(refusal); }
}

/// The options of ms-swift's export by convert's names.
void take_export_names(std::vector<std::string>& arguments) {
  static constexpr const char* names[][2] = {
      {"model", "in"}, {"model_id_or_path", "in"}, {"output_dir", "out"}, {"torch_dtype", "dtype"}};
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const std::size_t equals = argument.find('=');
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::ranges::replace(name, '-', '_');
    for (const auto& [theirs, ours] : names)
      if (name == theirs)
        argument = std::string("--") + ours + (equals == std::string::npos ? "" : argument.substr(equals));
  }
}

/// The commands sft, pt and rlhf are train with that --stage, and those of preferences (dpo, …) with their --rlhf_type.
void assign_stage(Options& options, const std::string& command) {
  const Source source{precedence::command_line, "command tessera " + command};
  const std::string stage = stage_of(command);
  if (stage != command) {
    if (options.given("rlhf_type") && options.text("rlhf_type") != command)
      throw Error(
          ExitCode::usage,
          "tessera " + command + " is --rlhf_type " + command + ", but --rlhf_type is " + options.text("rlhf_type"),
          options.value("rlhf_type").source.text, "Drop one of the two, or use tessera rlhf");
    options.assign("rlhf_type", {command}, source);
  }
  if (options.given("stage") && options.text("stage") != stage)
    throw Error(ExitCode::usage,
                "tessera " + stage + " is --stage " + stage + ", but --stage is " + options.text("stage"),
                options.value("stage").source.text, "Drop one of the two, or use tessera train");
  options.assign("stage", {stage}, source);
}

}  // namespace

Invocation parse_command_line(const std::vector<std::string>& arguments, char** environment,
                              const OptionCheck& further) {
  Invocation result;
  std::vector<std::string> rest = arguments;
  if (!rest.empty() && rest[0] == "help") {  // help COMMAND is COMMAND --help
    rest.erase(rest.begin());
    rest.emplace_back("--help");
  }
  if (!rest.empty() && (rest[0].empty() || rest[0][0] != '-')) {
    const CommandSpec* command = find_command(rest[0]);
    if (command == nullptr)
      throw Error(ExitCode::usage, "unknown command \"" + rest[0] + "\"", "command line", command_hint(rest[0]));
    result.command = command->name;
    if (is_stage_command(rest[0])) result.stage = rest[0];
    if (command->bit == for_plan && rest.size() > 1 && is_stage_command(rest[1])) {
      result.stage = rest[1];
      rest.erase(rest.begin() + 1);
    }
    result.options.commands = command->bit;
    if (rest[0] == "export") take_export_names(rest);
    rest.erase(rest.begin());
  }
  if (result.options.commands == for_job_script) {
    const auto end = std::ranges::find(rest, "--");
    if (end != rest.end()) result.ranks_command.assign(end + 1, rest.end());
    rest.erase(end, rest.end());
  }
  ScannedArguments scanned = canonical_arguments(rest, result.options.commands);
  const std::vector<std::string>& tokens = scanned.arguments;
  const po::variables_map map = parse_tokens(tokens);

  const std::vector<std::string> operands =
      map.count("operand") != 0 ? map["operand"].as<std::vector<std::string>>() : std::vector<std::string>{};
  const auto given = [&map](const char* name) { return map.count(name) != 0; };
  // These print and exit: they read no file and no environment.
  if (given("help") || given("help_all") || given("version") || given("man") || given("schema") ||
      given("help_markdown")) {
    throw_refusals(scanned.refusals);
    for (const auto& [name, value] : map) {
      if (name != "operand")
        result.options.assign(name, value.as<std::vector<std::string>>(), {precedence::command_line, "command line"});
    }
    return result;
  }
  for (const RefusedOption& refusal : scanned.refusals) result.options.refuse_later(refusal);
  take_operands(result, operands);
  result.options.read_environment(environment);
  for (const auto& [name, value] : map) {
    if (name == "operand") continue;
    std::vector<std::string> items = value.as<std::vector<std::string>>();
    const OptionSpec* spec = find_option(name);
    std::vector<int> positions = positions_of(name, tokens);
    if (spec->type != Type::list && spec->type != Type::repeated_text) {  // the last one wins
      items.erase(items.begin(), items.end() - 1);
      positions.erase(positions.begin(), positions.end() - 1);
    }
    assign_from(result.options, name, std::move(items), std::move(positions));
  }
  for (auto& [name, items] : scanned.other_tools) assign_from(result.options, name, std::move(items), {});
  if (!result.stage.empty()) assign_stage(result.options, result.stage);
  result.options.resolve();
  const bool explains = result.command == "config" && !result.operands.empty() && result.operands[0] == "explain";
  constexpr unsigned checked = for_train | for_plan | for_eval | for_config;
  if (!explains)  // explain prints its table first
    result.options.throw_refused((result.options.commands & checked) != 0 ? further : OptionCheck{});
  return result;
}

}  // namespace tessera::jobs
