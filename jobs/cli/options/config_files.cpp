// Reads the tree of a configuration file.
#include "jobs/cli/options/config_files.hpp"

#include <cstdlib>

#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/unsupported.hpp"

namespace tessera::jobs {

namespace {

bool is_scalar(const io::ConfigNode& node) { return node.kind == io::ConfigNode::Kind::scalar; }
bool is_auto(const io::ConfigNode& node) { return is_scalar(node) && node.text == "auto"; }
bool is_null(const io::ConfigNode& node) { return node.kind == io::ConfigNode::Kind::null; }

bool is_off(const std::string& text) {
  const std::string word = canonical_spelling(text);
  return word == "none" || word == "0" || parse_flag(word) == std::optional<bool>(false);
}

std::vector<std::string> keys_of(const std::string& block) {
  std::vector<std::string> keys;
  for (const ExternalKeySpec& spec : external_key_table())
    if (block == spec.block)
      for (const std::string& key : split_words(spec.keys, ' ')) keys.push_back(key);
  return keys;
}

const ExternalKeySpec* find_external_key(const std::string& block, const std::string& key) {
  for (const ExternalKeySpec& spec : external_key_table())
    if (block == spec.block)
      for (const std::string& known : split_words(spec.keys, ' '))
        if (key == known) return &spec;
  return nullptr;
}

}  // namespace

Source ConfigFileReader::source(const io::ConfigNode& node) const {
  return {precedence_, path_ + ":" + std::to_string(node.line)};
}

void ConfigFileReader::note(const io::ConfigNode& node, const std::string& key, const std::string& outcome) {
  options_.external_keys.push_back({source(node).text, key, outcome});
}

std::string ConfigFileReader::scalar(const io::ConfigNode& node, const std::string& key) const {
  if (!is_scalar(node)) throw Error(ExitCode::usage, key + ": expected one value", source(node).text);
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
    throw Error(ExitCode::usage, key + ": expected a value (" + name_of(spec->type) + "), got a block",
                source(node).text);
  std::vector<std::string> items;
  if (node.kind == io::ConfigNode::Kind::list) {
    for (const io::ConfigNode& item : node.items) items.push_back(scalar(item, key));
  } else if (spec->type == Type::list && !node.quoted) {
    items = split_list(node.text);
  } else {
    items.push_back(node.text);
  }
  options_.assign(name, std::move(items), source(node));
}

void ConfigFileReader::custom(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  const std::string what = spec.target;
  const auto set = [&](const char* option_name, const std::string& value) {
    options_.assign(option_name, {value}, source(node));
    note(node, key, std::string("mapped to ") + option_name + " " + value);
  };
  const auto refuse = [&](const std::string& why, const std::string& to_do = "") {
    throw Error(ExitCode::usage, key + why, source(node).text, to_do);
  };
  if (what == "offload_optimizer" || what == "offload_params") {
    const io::ConfigNode* device = node.find("device");
    if (device != nullptr && !is_off(scalar(*device, key))) set(what.c_str(), device->text);
    return note(node, key, "ignored: device none");
  }
  if (what == "betas") {
    if (node.kind != io::ConfigNode::Kind::list || node.items.size() != 2) refuse(": expected a list of two numbers");
    options_.assign("adam_beta1", {scalar(node.items[0], key)}, source(node));
    options_.assign("adam_beta2", {scalar(node.items[1], key)}, source(node));
    return note(node, key, "mapped to adam_beta1, adam_beta2");
  }
  const std::string text = scalar(node, key), word = canonical_spelling(text);
  if (what == "distributed_type") {
    if (word == "multi_cpu" || word == "multi_gpu") return set("sharding_strategy", "NO_SHARD");
    note(node, key, "ignored: see fsdp_config and deepspeed_config");
  } else if (what == "fsdp_sharding_strategy") {
    static constexpr const char* by_number[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                "HYBRID_SHARD_ZERO2"};
    const auto number = parse_integer(text);
    set("sharding_strategy", number && *number >= 1 && *number <= 5 ? by_number[*number - 1] : text);
  } else if (what == "fsdp_reshard") {
    const auto on = parse_flag(word);
    set("sharding_strategy", on ? (*on ? "FULL_SHARD" : "SHARD_GRAD_OP") : text);
  } else if (what == "deepspeed_file") {
    note(node, key, "used");
    options_.read_file(text);
  } else if (what == "mics_shard_size") {
    const auto size = parse_integer(text);
    if (!size) refuse(" " + text + ": expected a number of ranks");
    if (*size < 0) return note(node, key, "ignored: off");
    set("shard_group_size", text);
  } else if (what == "fixed_loss_scale") {
    if (parse_real(text) != std::optional<double>(0.0))
      refuse(" " + text + ": a fixed loss scale is not built yet", "Use 0, the dynamic loss scale");
    note(node, key, "used: the loss scale is dynamic");
  } else if (what == "communication_data_type") {
    set("reduce_dtype", word == "bfp16" || word == "bfloat16" ? "bf16"
                        : word == "float16"                   ? "fp16"
                        : word == "float32"                   ? "fp32"
                                                              : text);
  } else if (what == "steps_per_print") {
    const auto steps = parse_real(text);
    if (!steps || *steps < 1) refuse(" " + text + ": expected a number of steps");
    set("logging_steps", strfmt("%.0f", std::min(*steps, 1e15)));
  } else if (what == "optimizer_type") {
    if (word == "sgd") return set("optim", "sgd");
    if (word != "adamw" && word != "adam") refuse(" " + text + ": not built yet", "Use AdamW or SGD");
    set("optim", "adamw");
  } else if (what == "scheduler_type") {
    if (word == "warmuplr") set("lr_scheduler_type", "constant");
    else if (word == "warmupdecaylr") set("lr_scheduler_type", "linear");
    else if (word == "warmupcosinelr") set("lr_scheduler_type", "cosine");
    else refuse(" " + text + ": not built yet", "Use WarmupLR, WarmupDecayLR or WarmupCosineLR");
  } else if (what == "warmup_min_lr") {
    if (parse_real(text) != std::optional<double>(0.0)) refuse(" " + text + ": only 0 is built");
    note(node, key, "used");
  }
}

void ConfigFileReader::apply(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  if (is_auto(node)) return note(node, key, "ignored: auto leaves the default");
  if (is_null(node)) return note(node, key, "ignored: null");
  switch (spec.action) {
    case KeyAction::set:
      option(spec.target, node, key);
      return note(node, key, std::string("mapped to ") + spec.target + " " + node.text);
    case KeyAction::if_enabled:
      if (is_scalar(node) && is_off(node.text)) return note(node, key, "ignored: off");
      option(spec.target, node, key);
      return note(node, key,
                  find_option(spec.target) == nullptr ? "ignored: off" : std::string("mapped to ") + spec.target);
    case KeyAction::ignored: return note(node, key, std::string("ignored: ") + spec.target);
    case KeyAction::block: return read_block(spec.target, node, key);
    case KeyAction::custom: return custom(spec, node, key);
  }
}

void ConfigFileReader::read_block(const std::string& block, const io::ConfigNode& node, const std::string& prefix) {
  if (is_null(node)) return;
  if (node.kind != io::ConfigNode::Kind::map)
    throw Error(ExitCode::usage, prefix + ": expected a block of keys", source(node).text, "Indent its keys below it");
  for (const auto& [name, child] : node.entries) {
    const ExternalKeySpec* spec = find_external_key(block, name);
    if (spec == nullptr && block == "fsdp_config")
      spec = find_external_key(block, "fsdp_" + name);  // Hugging Face's form has no prefix
    if (spec == nullptr) {
      const std::string near = suggestion(name, keys_of(block));
      options_.refuse_later(RefusedOption(RefusedOption::Group::unknown, "unknown key " + prefix + "." + name,
                                          source(child).text, near.empty() ? "Remove it" : near));
      continue;
    }
    try {
      apply(*spec, child, prefix + "." + name);
    } catch (const RefusedOption& refusal) { options_.refuse_later(refusal); }
  }
}

void ConfigFileReader::read_env(const io::ConfigNode& node) {
  if (is_null(node)) return;
  if (node.kind != io::ConfigNode::Kind::map)
    throw Error(ExitCode::usage, "env: expected a block of variables", source(node).text, "Write NAME: value below it");
  for (const auto& [name, child] : node.entries) {
    const bool set_already = std::getenv(name.c_str()) != nullptr;
    if (!set_already) ::setenv(name.c_str(), scalar(child, "env." + name).c_str(), 0);
    note(child, "env." + name, set_already ? "ignored: set in the environment" : "used");
  }
}

void ConfigFileReader::read_top(const io::ConfigNode& root) {
  for (const auto& [name, child] : root.entries) {
    try {
      read_entry(name, child);
    } catch (const RefusedOption& refusal) { options_.refuse_later(refusal); }
  }
}

void ConfigFileReader::read_entry(const std::string& name, const io::ConfigNode& child) {
  const OptionSpec* spec = find_option(name);
  const bool nested = child.kind == io::ConfigNode::Kind::map;
  const ExternalKeySpec* accelerate = find_external_key("accelerate", name);
  const ExternalKeySpec* deepspeed = find_external_key("deepspeed", name);
  if (name == "env" || name == "ENV") read_env(child);
  else if (name == "zero_optimization" || (nested && (name == "deepspeed" || name == "bf16" || name == "fp16")))
    read_block(name, child, name);
  else if (accelerate != nullptr) apply(*accelerate, child, name);
  else if (deepspeed != nullptr && (spec == nullptr || is_auto(child))) apply(*deepspeed, child, name);
  else if (spec != nullptr || find_unsupported(name) != nullptr || find_other_tools(name) != nullptr)
    option(name, child, name);
  else {
    std::vector<std::string> names = option_names();
    for (const char* block : {"accelerate", "deepspeed"}) {
      for (std::string& key : keys_of(block)) names.push_back(std::move(key));
    }
    const std::string near = suggestion(name, names);
    throw RefusedOption(RefusedOption::Group::unknown, "unknown key " + name, source(child).text,
                        near.empty() ? "See tessera train --help-all" : near);
  }
}

void Options::read_file(const std::string& path) {
  if (files_ > 16)
    throw Error(ExitCode::usage, "configuration files include each other", path, "Remove one of the includes");
  read_tree(io::read_config(path), path);
}

void Options::read_tree(const io::ConfigNode& root, const std::string& path) {
  ConfigFileReader(*this, path, precedence::file + files_++).read_top(root);
}

}  // namespace tessera::jobs
