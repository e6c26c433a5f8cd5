// SPDX-License-Identifier: Apache-2.0
// Rewrites arguments to one form, which Boost.Program_options then reads.
#include <filesystem>

#include "jobs/cli/options/list_items.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/renamed.hpp"
#include "jobs/cli/options/unsupported.hpp"

namespace tessera::jobs {

namespace {

bool looks_like_option(const std::string& token) { return token.size() > 2 && token[0] == '-' && token[1] == '-'; }

[[noreturn]] void unknown(const std::string& dashes, const std::string& name, unsigned commands) {
  const OptionSpec* elsewhere = find_option(name);
  if (elsewhere != nullptr && (elsewhere->commands & commands) != 0)
    throw RefusedOption(RefusedOption::Group::unknown, "unknown option " + dashes + name, "command line",
                        "Options begin with two dashes: --" + name);
  if (elsewhere != nullptr) {
    const std::string instead = instead_of(*elsewhere, commands);
    throw RefusedOption(
        RefusedOption::Group::not_supported, "this command has no option --" + name, "command line",
        (instead.empty() ? "" : instead + ". ") + "Commands that have it: " + names_of_commands(elsewhere->commands));
  }
  const std::string near = suggestion(name, option_names(commands));
  throw RefusedOption(RefusedOption::Group::unknown, "unknown option " + dashes + name, "command line",
                      near.empty() ? "See --help-all" : near);
}

/// True for a file that could be an operand of the command: no value of an option that takes none.
bool is_config_file(const std::string& text) {
  std::error_code ignored;
  return (text.ends_with(".yaml") || text.ends_with(".yml") || text.ends_with(".json")) &&
         std::filesystem::exists(text, ignored);
}

class ArgumentScanner {
 public:
  ArgumentScanner(const std::vector<std::string>& arguments, unsigned commands)
      : arguments_(arguments), commands_(commands) {}

  ScannedArguments run() {
    while (next_ < arguments_.size()) {
      const std::string token = arguments_[next_++];
      try {
        argument(token);
      } catch (const RefusedOption& refusal) {
        refusals_.push_back(refusal);
        (void)values_behind();
      }
    }
    return {std::move(out_), std::move(other_tools_), std::move(refusals_)};
  }

 private:
  using Group = RefusedOption::Group;

  void argument(const std::string& token) {
    if (token == "-h") out_.emplace_back("--help=true");
    else if (token == "-V") out_.emplace_back("--version=true");
    else if (looks_like_option(token)) option(token);
    else if (token.size() > 1 && token[0] == '-' && token != "--") unknown("-", token.substr(1), commands_);
    else out_.push_back(token);
  }

  /// Takes the arguments up to the next option or configuration file.
  std::vector<std::string> values_behind() {
    std::vector<std::string> found;
    while (next_ < arguments_.size() && !looks_like_option(arguments_[next_]) && !is_config_file(arguments_[next_]))
      found.push_back(arguments_[next_++]);
    return found;
  }

  void option(const std::string& token) {
    const std::size_t equals = token.find('=');
    const bool has_value = equals != std::string::npos;
    const std::string name = token.substr(2, has_value ? equals - 2 : std::string::npos);
    const OptionSpec* spec = find_option(name);
    if (spec == nullptr && name == "config") return config_file(has_value ? token.substr(equals + 1) : "");
    if (spec == nullptr &&
        (find_unsupported(name) != nullptr || find_renamed(name) != nullptr || takes_other_tools(name)))
      return not_ours(name, has_value ? split_words(token.substr(equals + 1), ',') : values_behind());
    bool negated = false;
    if (spec == nullptr && (name.rfind("no-", 0) == 0 || name.rfind("no_", 0) == 0)) {
      spec = find_option(name.substr(3));
      negated = spec != nullptr && spec->type == Type::flag;
      if (!negated) spec = nullptr;
    }
    if (spec == nullptr || (spec->commands & commands_) == 0) unknown("--", name, commands_);
    if (negated && has_value)
      throw RefusedOption(Group::wrong_value, "--" + name + " takes no value", "command line", "Write --" + name);
    const std::string head = std::string("--") + spec->name + "=";
    if (negated) out_.push_back(head + "false");
    else if (has_value) values(head, *spec, name, token.substr(equals + 1));
    else if (spec->type == Type::flag) flag(head, name);
    else following(head, *spec, name);
  }

  /// ms-swift's --config FILE: an operand.
  void config_file(std::string path) {
    if (path.empty() && next_ < arguments_.size() && !looks_like_option(arguments_[next_])) path = arguments_[next_++];
    if (path.empty()) throw RefusedOption(Group::wrong_value, "--config: expected a YAML or JSON file", "command line");
    out_.push_back(path);
  }

  /// True if this command takes that option of another tool: with its target, if there is one.
  [[nodiscard]] bool takes_other_tools(const std::string& name) const {
    const OtherToolsOption* found = find_other_tools(name);
    if (found == nullptr) return false;
    return found->target[0] == '\0' || (find_option(found->target)->commands & commands_) != 0;
  }

  /// Drops an unsupported or renamed option if its values ask for nothing.
  void not_ours(const std::string& name, std::vector<std::string> items) {
    if (items.empty()) items.emplace_back("true");
    if (const UnsupportedOption* unsupported = find_unsupported(name))
      return check_unsupported(*unsupported, name, items, "command line");
    if (const RenamedOption* renamed = find_renamed(name)) return check_renamed(*renamed, name, items, "command line");
    other_tools_.emplace_back(name, std::move(items));
  }

  void values(const std::string& head, const OptionSpec& spec, const std::string& name, const std::string& text) {
    if (text.empty())
      throw RefusedOption(Group::wrong_value, "--" + name + ": expected a value", "command line",
                          "Leave the option out to keep the default");
    const std::string expected = expected_value(spec, text);
    if (!expected.empty())
      throw RefusedOption(Group::wrong_value, "--" + name + " " + text + ": expected " + expected, "command line",
                          value_instead(spec, text));
    if (spec.type != Type::list) {
      out_.push_back(head + text);
      return;
    }
    for (const std::string& value : argument_items(spec, text)) out_.push_back(head + value);
  }

  /// A flag takes the next argument only if that is a boolean. Where operands can only be files, any other text that is
  /// not a file's name is an error.
  void flag(const std::string& head, const std::string& name) {
    if (next_ == arguments_.size() || looks_like_option(arguments_[next_])) {
      out_.push_back(head + "true");
      return;
    }
    const std::string& text = arguments_[next_];
    std::error_code ignored;
    if (parse_flag(text)) {
      out_.push_back(head + text);
      ++next_;
    } else if ((commands_ & (for_train | for_plan)) != 0 && text.find_first_of("./-") == std::string::npos &&
               !std::filesystem::exists(text, ignored)) {
      throw RefusedOption(Group::wrong_value, "--" + name + " " + text + ": expected true or false", "command line");
    } else {
      out_.push_back(head + "true");
    }
  }

  void following(const std::string& head, const OptionSpec& spec, const std::string& name) {
    const std::size_t before = out_.size();
    // These are flags in some tools and take a value in others.
    const bool flag_elsewhere =
        is_named("fsdp gradient_checkpointing forward_prefetch offload_optimizer offload_params", spec.name);
    while (next_ < arguments_.size() && !looks_like_option(arguments_[next_]) &&
           !(flag_elsewhere && is_config_file(arguments_[next_]))) {
      values(head, spec, name, arguments_[next_++]);
      if (spec.type != Type::list) break;
    }
    if (out_.size() != before) return;
    if (flag_elsewhere) {
      out_.push_back(head + "true");
      return;
    }
    std::string expected = expected_value(spec, "");
    if (expected.empty()) expected = spec.values[0] != '\0' ? spec.values : "a value";
    throw RefusedOption(Group::wrong_value, "--" + name + ": expected " + expected, "command line");
  }

  const std::vector<std::string>& arguments_;
  unsigned commands_;
  std::size_t next_ = 0;
  std::vector<std::string> out_;
  std::vector<std::pair<std::string, std::vector<std::string>>> other_tools_;
  std::vector<RefusedOption> refusals_;
};

}  // namespace

ScannedArguments canonical_arguments(const std::vector<std::string>& arguments, unsigned commands) {
  return ArgumentScanner(arguments, commands).run();
}

}  // namespace tessera::jobs
