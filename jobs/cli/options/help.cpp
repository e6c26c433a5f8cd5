// SPDX-License-Identifier: Apache-2.0
// Help and the JSON schema.
#include <cmath>
#include <nlohmann/json.hpp>

#include "jobs/cli/options/docs_generator.hpp"
#include "jobs/cli/options/examples.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

std::string value_after_name(const OptionSpec& spec) {
  if (spec.type == Type::flag) return "";
  if (spec.values[0] != '\0') return std::string(" ") + spec.values;
  return std::string(" <") + name_of(spec.type) + ">";
}

std::string wrap(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out, line;
  for (const std::string& word : split_words(text, ' ')) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      out += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? out : out + std::string(indent, ' ') + line + "\n";
}

std::string details(const OptionSpec& spec, const std::string& default_value) {
  std::string text = std::string("type ") + name_of(spec.type);
  if (!default_value.empty()) text += "; default " + default_value;
  std::string aliases;
  for (const std::string& alias : split_words(spec.aliases, ' '))
    aliases += (aliases.empty() ? "" : ", ") + ("--" + alias);
  if (!aliases.empty()) text += "; also " + aliases;
  if (spec.equivalents[0] != '\0') text += std::string("; equivalent: ") + spec.equivalents;
  if (spec.status == Status::no_effect) text += "; accepted without effect";
  return text;
}

/// A help without the "[…]" at its end, which says what the default is where the table has none.
std::string without_default(std::string help) {
  if (const std::size_t at = help.rfind(" ["); help.ends_with(']') && at != std::string::npos) help.erase(at);
  return help;
}

std::string option_text(const OptionSpec& spec, bool all, const std::string& stage) {
  const std::string default_value = stage_default(spec, stage);
  const std::string head = std::string("  --") + spec.name + value_after_name(spec);
  const bool of_stage = default_value != spec.default_value;
  std::string help = of_stage ? without_default(spec.help) : spec.help;
  const bool shown = !default_value.empty() && (spec.type != Type::flag || default_value == "true");
  if (!all && shown) help += " [" + default_value + "]";
  std::string body = wrap(help, 36, 120);
  if (head.size() < 34) body.replace(0, head.size(), head);
  else body = head + "\n" + body;
  return all ? body + wrap("(" + details(spec, default_value) + ")", 36, 120) : body;
}

std::string options_text(unsigned commands, bool all, const std::string& stage) {
  std::string out;
  for (const std::string& group : option_groups()) {
    std::string options;
    for (const OptionSpec& spec : option_table()) {
      const bool listed = (spec.commands & commands) != 0 && (all || spec.status == Status::built);
      if (group == spec.group && listed) options += option_text(spec, all, stage);
    }
    if (!options.empty()) out += "\n" + group + "\n" + options;
  }
  return out;
}

}  // namespace

std::string help_text(const CommandSpec* command, bool all, const std::string& stage) {
  std::string out;
  if (command == nullptr) {
    out =
        "tessera <command> [CONFIG.yaml|json ...] [--options]\n\nTrains transformer language models sharded over MPI "
        "ranks.\n\nCommands\n";
    for (const CommandSpec& entry : command_table()) out += strfmt("  %-12s %s\n", entry.name, entry.help);
    out +=
        "\ntessera <command> --help lists the command's options, --help-all also their types, aliases and "
        "equivalents.\n"
        "tessera help <command> is the same as tessera <command> --help.\n";
    return all ? out + options_text(for_all, true, "") : out;
  }
  const bool launches = command->bit == for_launch;  // its operands say where options stand
  out = "tessera " + (stage.empty() ? command->name : stage) +
        (command->operands[0] != '\0' ? std::string(" ") + command->operands : "") +
        (launches || command->bit == for_job_script ? "\n\n" : " [--options]\n\n") +
        (stage == "sft"    ? "fine-tune a model on conversations: train --stage sft"
         : stage == "pt"   ? "train a model on text: train --stage pt"
         : stage == "rlhf" ? "train a model on preferences: train --stage rlhf"
         : stage.empty()   ? command->help
                           : "train a model on preferences: train --stage rlhf --rlhf_type " + stage) +
        "\n";
  if (launches) out += "What stands before -- goes to mpirun (mpirun --help): tessera launch -n 4 -- train run.yaml\n";
  else if (!all)
    out += "'-' and '_' are the same in names; --help-all adds types, aliases and equivalents in other tools.\n";
  if (!stage.empty())
    out += "Ranks are started by tessera launch -n N -- " + stage + " ...; without it, a run is of one rank.\n";
  return out + examples_text(*command, stage) + options_text(command->bit, all, stage);
}

std::string json_schema() {
  nlohmann::ordered_json properties = nlohmann::ordered_json::object();
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & for_runs) == 0) continue;
    nlohmann::ordered_json entry;
    switch (spec.type) {
      case Type::flag: entry["type"] = "boolean"; break;
      case Type::integer: entry["type"] = "integer"; break;
      case Type::steps:
      case Type::real: entry["type"] = "number"; break;
      case Type::repeated_text:
      case Type::list: entry["type"] = "array", entry["items"] = {{"type", "string"}}; break;
      case Type::choice: entry["enum"] = split_words(spec.values, '|'); break;
      case Type::size:
      case Type::duration:
      case Type::range:
      case Type::text: entry["type"] = {"string", "number"}; break;
    }
    entry["description"] = spec.help;
    if (std::isfinite(spec.min)) entry["minimum"] = spec.type == Type::steps ? 0 : spec.min;  // a share is below 1
    if (std::isfinite(spec.max)) entry["maximum"] = spec.max;
    if (spec.default_value[0] != '\0') entry["default"] = spec.default_value;
    properties[spec.name] = std::move(entry);
  }
  nlohmann::ordered_json schema;
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "tessera configuration: options by name";
  schema["type"] = "object";
  schema["properties"] = std::move(properties);
  return schema.dump(2) + "\n";
}

}  // namespace tessera::jobs
