// Help and the JSON schema.
#include <nlohmann/json.hpp>

#include "jobs/cli/options/docs_generator.hpp"
#include "jobs/cli/options/values.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

std::string value_words(const OptionSpec& spec) {
  if (spec.type == Type::flag) return "";
  if (spec.words[0] != '\0') return std::string(" ") + spec.words;
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

std::string details(const OptionSpec& spec) {
  std::string text = std::string("type ") + name_of(spec.type);
  if (spec.default_value[0] != '\0') text += std::string("; default ") + spec.default_value;
  std::string aliases;
  for (const std::string& alias : split_words(spec.aliases, ' '))
    aliases += (aliases.empty() ? "" : ", ") + ("--" + alias);
  if (!aliases.empty()) text += "; also " + aliases;
  if (spec.matches[0] != '\0') text += std::string("; matches ") + spec.matches;
  if (spec.status == Status::not_built) {
    text += "; NOT BUILT YET";
    if (spec.fine[0] != '\0') text += std::string(", accepts ") + spec.fine;
  }
  if (spec.status == Status::no_effect) text += "; accepted without effect";
  return text;
}

std::string options_text(unsigned commands, bool all) {
  std::string out, group;
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & commands) == 0 || (!all && spec.status != Status::built)) continue;
    if (group != spec.group) {
      group = spec.group;
      out += "\n" + group + "\n";
    }
    const std::string head = std::string("  --") + spec.name + value_words(spec);
    std::string help = spec.help;
    if (!all && spec.default_value[0] != '\0' && spec.type != Type::flag)
      help += std::string(" [") + spec.default_value + "]";
    if (!all && spec.type == Type::flag && std::string(spec.default_value) == "true") help += " [true]";
    if (head.size() < 34) {
      std::string body = wrap(help, 36, 120);
      body.replace(0, head.size(), head);
      out += body;
    } else {
      out += head + "\n" + wrap(help, 36, 120);
    }
    if (all) out += wrap("(" + details(spec) + ")", 36, 120);
  }
  return out;
}

}  // namespace

std::string help_text(const CommandSpec* command, bool all) {
  std::string out;
  if (command == nullptr) {
    out =
        "tessera <command> [CONFIG.yaml|json ...] [--options]\n\nTrains transformer language models sharded over MPI "
        "ranks.\n\nCommands\n";
    for (const CommandSpec& entry : command_table()) out += strfmt("  %-12s %s\n", entry.name, entry.help);
    out +=
        "\ntessera <command> --help lists a command's options, --help-all everything about them; --version says what "
        "this "
        "is.\n";
    return all ? out + options_text(for_all, true) : out;
  }
  out = std::string("tessera ") + command->name +
        (command->operands[0] != '\0' ? std::string(" ") + command->operands : "") + " [--options]\n\n" +
        command->help + "\n";
  if (!all) out += "'-' and '_' are the same in names; --help-all adds types, aliases and what is not built yet.\n";
  return out + options_text(command->bit, all);
}

std::string json_schema() {
  nlohmann::ordered_json properties = nlohmann::ordered_json::object();
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & for_runs) == 0) continue;
    nlohmann::ordered_json entry;
    switch (spec.type) {
      case Type::flag: entry["type"] = "boolean"; break;
      case Type::integer: entry["type"] = "integer"; break;
      case Type::real: entry["type"] = "number"; break;
      case Type::repeated_text:
      case Type::list: entry["type"] = "array", entry["items"] = {{"type", "string"}}; break;
      case Type::choice: entry["enum"] = split_words(spec.words, '|'); break;
      case Type::size:
      case Type::duration:
      case Type::range:
      case Type::text: entry["type"] = {"string", "number"}; break;
    }
    entry["description"] = spec.help;
    if (spec.least > -1e300) entry["minimum"] = spec.least;
    if (spec.most < 1e300) entry["maximum"] = spec.most;
    if (spec.default_value[0] != '\0') entry["default"] = spec.default_value;
    if (spec.status == Status::not_built)
      entry["$comment"] =
          std::string("not built yet") + (spec.fine[0] != '\0' ? std::string("; accepts ") + spec.fine : "");
    properties[spec.name] = std::move(entry);
  }
  nlohmann::ordered_json schema;
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "tessera configuration, flat names";
  schema["type"] = "object";
  schema["properties"] = std::move(properties);
  return schema.dump(2) + "\n";
}

}  // namespace tessera::jobs
