// SPDX-License-Identifier: Apache-2.0
// Reads the tree of a configuration file.
#include "jobs/cli/options/config_files.hpp"

#include <cstdlib>
#include <optional>

#include "io/tokenizer/utf8.hpp"
#include "jobs/cli/options/list_items.hpp"
#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/renamed.hpp"
#include "jobs/cli/options/unsupported.hpp"

namespace tessera::jobs {

namespace {

bool is_scalar(const io::ConfigNode& node) { return node.kind == io::ConfigNode::Kind::scalar; }
bool is_auto(const io::ConfigNode& node) { return is_scalar(node) && node.text == "auto"; }
bool is_null(const io::ConfigNode& node) { return node.kind == io::ConfigNode::Kind::null; }

/// Whether an `enabled` below a node is on; nothing if there is no `enabled`.
std::optional<bool> switch_below(const io::ConfigNode& node) {
  std::optional<bool> found;
  for (const auto& [name, child] : node.entries) {
    const bool is_switch = name == "enabled";
    const std::optional<bool> below = switch_below(child);
    if (!is_switch && !below) continue;
    const bool on = is_switch ? is_scalar(child) && !is_auto(child) && !is_off(child.text) : *below;
    found = found.value_or(false) || on;
  }
  return found;
}

bool same_number(const std::string& a, const std::string& b) {
  const auto left = parse_real(a), right = parse_real(b);
  return left && right && *left == *right;
}

}  // namespace

bool is_off(const std::string& text) {
  const std::string word = canonical_spelling(text);
  return word.empty() || word == "none" || word == "0" || parse_flag(word) == std::optional<bool>(false);
}

bool is_enabled(const io::ConfigNode& node, bool without) {
  if (is_scalar(node)) return !is_off(node.text);
  if (node.kind == io::ConfigNode::Kind::map) return switch_below(node).value_or(without && !node.entries.empty());
  return !node.items.empty();
}

Source ConfigFileReader::source(const io::ConfigNode& node) const {
  return {precedence_, lines_ ? path_ + ":" + std::to_string(node.line) : path_};
}

void ConfigFileReader::note(const io::ConfigNode& node, const std::string& key, Outcome outcome,
                            const std::string& text, const std::string& option_name) {
  options_.external_keys.push_back({source(node).text, key, outcome, text, option_name});
}

void ConfigFileReader::refuse(const io::ConfigNode& node, const std::string& what, const std::string& to_do) const {
  throw RefusedOption(RefusedOption::Group::wrong_value, what, source(node).text, to_do);
}

void ConfigFileReader::keep_refusals(const io::ConfigNode& node, const std::string& key,
                                     const std::function<void()>& read) {
  try {
    read();
  } catch (const RefusedOption& refusal) {
    options_.refuse_later(refusal);
    note(node, key, Outcome::refused, refusal.line());
  }
}

std::string ConfigFileReader::scalar(const io::ConfigNode& node, const std::string& key) const {
  if (!is_scalar(node)) refuse(node, key + ": expected one value");
  return node.text;
}

void ConfigFileReader::option(const std::string& name, const io::ConfigNode& node, const std::string& key) {
  if (is_null(node)) return;  // leaves the default
  const OptionSpec* spec = find_option(name);
  if (spec == nullptr) {
    const std::vector<std::string> values = is_scalar(node) ? split_list(node.text) : std::vector<std::string>{"{...}"};
    return options_.assign(name, values, source(node));
  }
  if (node.kind == io::ConfigNode::Kind::map)
    refuse(node, key + ": expected a value (" + name_of(spec->type) + "), got a block");
  std::vector<std::string> items;
  if (node.kind == io::ConfigNode::Kind::list) {
    for (const io::ConfigNode& item : node.items)
      for (std::string& one : quoted_items(*spec, scalar(item, key))) items.push_back(std::move(one));
  } else if (spec->type == Type::list && !node.quoted) {
    items = list_items(*spec, node.text);
  } else {
    items = quoted_items(*spec, node.text);
  }
  options_.assign(name, std::move(items), source(node));
}

void ConfigFileReader::only(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  const bool empty = !is_scalar(node) && node.items.empty() && node.entries.empty();
  for (const std::string& value : split_words(spec.accepted, '|')) {
    const bool same = is_scalar(node) && (canonical_spelling(node.text) == value || same_number(node.text, value));
    if (empty || same) return note(node, key, Outcome::harmless, spec.target);
  }
  throw RefusedOption(RefusedOption::Group::not_supported,
                      key + " " + (is_scalar(node) ? node.text : "{...}") + ": not built yet", source(node).text,
                      spec.instead);
}

void ConfigFileReader::switched(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  if (!is_enabled(node, /*without=*/true)) return note(node, key, Outcome::harmless, "off");
  if (spec.target == std::string(by_enabled) && !is_enabled(node, /*without=*/false))
    return note(node, key, Outcome::harmless, by_enabled);
  throw RefusedOption(RefusedOption::Group::not_supported, key + ": not built yet", source(node).text, spec.instead);
}

void ConfigFileReader::apply(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  if (is_auto(node)) return note(node, key, Outcome::harmless, "auto leaves the default");
  if (is_null(node)) return note(node, key, Outcome::harmless, "null leaves the default");
  switch (spec.action) {
    case KeyAction::if_enabled:
      if (is_scalar(node) && is_off(node.text)) return note(node, key, Outcome::harmless, "off");
      [[fallthrough]];
    case KeyAction::set: return set_target(spec, node, key);
    case KeyAction::harmless: return note(node, key, Outcome::harmless, spec.target);
    case KeyAction::only: return only(spec, node, key);
    case KeyAction::switched: return switched(spec, node, key);
    case KeyAction::block: return read_block(spec.target, node, key);
    case KeyAction::custom: return custom(spec, node, key);
  }
}

void ConfigFileReader::set_target(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  const std::string value = is_scalar(node) ? " " + node.text : "";
  if (const UnsupportedOption* missing = find_unsupported(spec.target)) {
    if (is_scalar(node) && is_off(node.text)) return note(node, key, Outcome::harmless, "off");
    if (is_scalar(node) && node.text == "1" && std::string(missing->accepted).ends_with("|1"))
      return note(node, key, Outcome::harmless, "off");
    throw RefusedOption(RefusedOption::Group::not_supported, key + value + ": not built yet", source(node).text,
                        missing->message);
  }
  const OptionSpec* target = find_option(spec.target);
  if (target != nullptr && target->type == Type::steps && is_scalar(node) && !parse_integer(node.text))
    refuse(node, key + value + ": expected a number of steps");  // such keys have no shares of all steps
  option(spec.target, node, key);
  note(node, key, Outcome::mapped, std::string("mapped to ") + spec.target + value, spec.target);
}

void ConfigFileReader::apply_of(const std::string& block, const std::string& name, const io::ConfigNode& node,
                                const std::string& key) {
  const ExternalKeySpec* spec = find_external_key(block, name);
  // Hugging Face's form of these blocks has no prefixes.
  if (spec == nullptr && block == "fsdp_config") spec = find_external_key(block, "fsdp_" + name);
  if (spec == nullptr && block == "parallelism_config") spec = find_external_key(block, block + "_" + name);
  if (spec != nullptr) return apply(*spec, node, key);
  if (name.starts_with('_')) return note(node, key, Outcome::harmless, "a comment");
  const std::string near = suggestion(name, external_keys_of(block));
  throw RefusedOption(RefusedOption::Group::unknown, "unknown key " + key, source(node).text,
                      near.empty() ? "Remove it" : near);
}

void ConfigFileReader::read_block(const std::string& block, const io::ConfigNode& node, const std::string& prefix) {
  if (is_null(node)) return;
  if (node.kind != io::ConfigNode::Kind::map)
    refuse(node, prefix + ": expected a block of keys", "Indent its keys below it");
  if (node.entries.empty()) note(node, prefix, Outcome::harmless, "empty");
  for (const auto& [name, child] : node.entries)
    keep_refusals(child, prefix + "." + name, [&] { apply_of(block, name, child, prefix + "." + name); });
}

void ConfigFileReader::read_env(const io::ConfigNode& node) {
  if (is_null(node)) return;
  if (node.kind != io::ConfigNode::Kind::map)
    refuse(node, "env: expected a block of variables", "Write NAME: value below it");
  for (const auto& [name, child] : node.entries) {
    if (is_option_variable(name))
      refuse(child, "env." + name + " has no effect: such variables are read before the files",
             "Write it as an option of the file: " + canonical_spelling(name.substr(8)));
    const bool set_already = std::getenv(name.c_str()) != nullptr;
    if (!set_already) ::setenv(name.c_str(), scalar(child, "env." + name).c_str(), 0);
    if (set_already) note(child, "env." + name, Outcome::harmless, "set in the environment");
    else note(child, "env." + name, Outcome::used);
  }
}

void ConfigFileReader::read_top(const io::ConfigNode& root) {
  const io::ConfigNode* const fsdp = root.find("fsdp");
  const bool fsdp_is_off = fsdp != nullptr && !is_null(*fsdp) && !is_enabled(*fsdp, /*without=*/false);
  for (const auto& [name, child] : root.entries)
    keep_refusals(child, name, [&] {
      if (fsdp_is_off && name == "fsdp_config") note(child, name, Outcome::harmless, "off: fsdp is false");
      else read_entry(name, child);
    });
}

void ConfigFileReader::read_entry(const std::string& name, const io::ConfigNode& child) {
  const OptionSpec* spec = find_option(name);
  const bool nested = child.kind == io::ConfigNode::Kind::map;
  const ExternalKeySpec* accelerate = find_external_key("accelerate", name);
  const ExternalKeySpec* deepspeed = find_external_key("deepspeed", name);
  if (name == "env" || name == "ENV") return read_env(child);
  if (nested && name == "deepspeed") return read_block(name, child, name);
  if (name == "fsdp_config" && is_scalar(child) && child.text.ends_with(".json")) {
    note(child, name, Outcome::used);
    return options_.read_included(child.text, precedence_, "fsdp_config");
  }
  if (nested && name == "lr_scheduler_kwargs") return read_block(name, child, name);
  if (accelerate != nullptr) return apply(*accelerate, child, name);
  const bool of_axolotl = is_scalar(child) && !is_auto(child) && find_renamed(name) != nullptr;  // optimizer: adamw
  if (deepspeed != nullptr && !of_axolotl && (spec == nullptr || is_auto(child) || nested))
    return apply(*deepspeed, child, name);
  if (spec != nullptr || find_unsupported(name) != nullptr || find_renamed(name) != nullptr ||
      find_other_tools(name) != nullptr) {
    const std::size_t noted = options_.external_keys.size();
    option(name, child, name);
    if (options_.external_keys.size() == noted)
      note(child, name, spec == nullptr && !is_null(child) ? Outcome::harmless : Outcome::option,
           spec == nullptr ? "it asks for nothing" : "", spec == nullptr ? "" : spec->name);
    return;
  }
  if (name.starts_with('_')) return note(child, name, Outcome::harmless, "a comment");
  std::vector<std::string> names = option_names();
  for (const char* block : {"accelerate", "deepspeed"})
    for (std::string& key : external_keys_of(block)) names.push_back(std::move(key));
  const std::string near = suggestion(name, names);
  throw RefusedOption(RefusedOption::Group::unknown, "unknown key " + name, source(child).text,
                      near.empty() ? "See tessera train --help-all" : near);
}

void Options::read_file(const std::string& path) {
  // An included file has the precedence below that of the file that names it.
  const int above = precedence::file + ++files_ * precedence::file_step;
  read_included(path, above, "");
}

void Options::read_included(const std::string& path, int including, const std::string& block) {
  if (++depth_ > precedence::file_step - 2)
    throw Error(ExitCode::usage, "configuration files include each other", path, "Remove one of the includes");
  if (io::utf8::valid_prefix(path) != path.size())  // it is the source of options, which are written to JSON files
    throw Error(ExitCode::usage, "the name of a configuration file is not UTF-8", io::utf8::repaired(path),
                "Rename it");
  const io::ConfigNode root = io::read_config(path);
  if (const io::ConfigNode* of_a_model = root.find("architectures"); of_a_model != nullptr)
    throw Error(ExitCode::usage, "this is the config.json of a model, not a file of options",
                path + ":" + std::to_string(of_a_model->line), "Give it with --model, or convert its directory");
  ConfigFileReader reader(*this, path, including - 1);
  if (block.empty()) reader.read_top(root);
  else reader.read_block(block, root, block);
  --depth_;
}

void Options::assign_block(const std::string& name, const std::string& text, const Source& source) {
  if (text.ends_with(".json")) {
    if (source.precedence < precedence::environment) return read_included(text, source.precedence, name);
    return read_included(text, precedence::file + ++files_ * precedence::file_step, name);
  }
  const io::ConfigNode root = io::parse_json_config(text, source.text);
  ConfigFileReader(*this, source.text, source.precedence - 1, false).read_block(name, root, "--" + name);
}

void Options::read_tree(const io::ConfigNode& root, const std::string& path) {
  ConfigFileReader(*this, path, precedence::file + ++files_ * precedence::file_step - 1).read_top(root);
}

}  // namespace tessera::jobs
