// The walker over configuration trees: our flat names, and the words of accelerate and DeepSpeed.
#include "jobs/cli/options/config_files.hpp"

#include <cstdlib>
#include <cstring>

namespace tessera::jobs {

namespace {

bool is_auto(const io::ConfigNode& node) { return node.kind == io::ConfigNode::Kind::scalar && node.text == "auto"; }
bool is_null(const io::ConfigNode& node) { return node.kind == io::ConfigNode::Kind::null; }

bool is_off(const std::string& text) {
  const std::string word = canonical_spelling(text);
  return word == "none" || word == "0" || parse_flag(word) == std::optional<bool>(false);
}

const ExternalKeySpec* find_external_key(const std::string& block, const std::string& key) {
  for (const ExternalKeySpec& spec : external_key_table()) {
    if (block == spec.block && key == spec.key) return &spec;
  }
  return nullptr;
}

std::vector<std::string> keys_of(const std::string& block) {
  std::vector<std::string> keys;
  for (const ExternalKeySpec& spec : external_key_table()) {
    if (block == spec.block) keys.emplace_back(spec.key);
  }
  return keys;
}

}  // namespace

Source ConfigFileReader::source(const io::ConfigNode& node) const {
  return {layer_, path_ + ":" + std::to_string(node.line)};
}

void ConfigFileReader::note(const io::ConfigNode& node, const std::string& key, const std::string& verdict) {
  options_.external_keys.push_back({source(node).text, key, verdict});
}

std::string ConfigFileReader::scalar(const io::ConfigNode& node, const std::string& key) const {
  if (node.kind != io::ConfigNode::Kind::scalar) {
    throw Error(ExitCode::usage, key + " is not a single value", source(node).text, "Write one value");
  }
  return node.text;
}

void ConfigFileReader::option(const std::string& name, const io::ConfigNode& node, const std::string& key) {
  if (is_null(node)) return;  // leave the default
  const OptionSpec* spec = find_option(name);
  if (node.kind == io::ConfigNode::Kind::map) {
    throw Error(ExitCode::usage, key + " is a block, but the option takes a " + std::string(name_of(spec->type)),
                source(node).text, "Write a value");
  }
  std::vector<std::string> items;
  if (node.kind == io::ConfigNode::Kind::list) {
    for (const io::ConfigNode& item : node.items) items.push_back(scalar(item, key));
  } else if (spec->type == Type::list && !node.quoted) {
    for (const std::string& part : split_words(node.text, ' ')) {
      for (std::string& item : split_words(part, ',')) items.push_back(std::move(item));
    }
  } else {
    items.push_back(node.text);
  }
  options_.assign(name, std::move(items), source(node));
}

void ConfigFileReader::special(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  const std::string what = spec.target;
  const auto set = [&](const char* option_name, const std::string& value) {
    options_.assign(option_name, {value}, source(node));
    note(node, key, std::string("mapped to ") + option_name + " " + value);
  };
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::usage, key + ": " + why, source(node).text, "Leave it out");
  };
  if (what == "refuse_block") refuse("is not built yet");
  if (what == "offload_optimizer" || what == "offload_params") {
    const io::ConfigNode* device = node.find("device");
    if (device != nullptr && !is_off(scalar(*device, key))) set(what.c_str(), device->text);
    return note(node, key, "ignored: device none");
  }
  if (what == "betas") {
    if (node.kind != io::ConfigNode::Kind::list || node.items.size() != 2) refuse("is not a list of two numbers");
    options_.assign("adam_beta1", {scalar(node.items[0], key)}, source(node));
    options_.assign("adam_beta2", {scalar(node.items[1], key)}, source(node));
    return note(node, key, "mapped to adam_beta1, adam_beta2");
  }
  const std::string text = scalar(node, key), word = canonical_spelling(text);
  if (what == "distributed_type") {
    if (word == "multi_cpu" || word == "multi_gpu") return set("sharding_strategy", "NO_SHARD");
    note(node, key, "ignored: the blocks say more");
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
  } else if (what == "mics_shard_size" || what == "hpz") {
    const auto size = parse_integer(text);
    if (!size) refuse("is not a number of ranks");
    if ((what == "hpz" && *size <= 1) || *size < 0) return note(node, key, "ignored: off");
    if (what == "hpz")
      refuse(
          "keeps a second copy of the parameters, which is not built yet (mics_shard_size and shard_group_size are)");
    set("shard_group_size", text);
  } else if (what == "refuse_on") {
    if (!is_off(word)) refuse("is not built yet");
    note(node, key, "ignored: off");
  } else if (what == "fixed_loss_scale") {
    if (parse_real(text) != std::optional<double>(0.0))
      refuse("a loss scale that stays as it is is not built; 0 is the dynamic one");
    note(node, key, "used: the loss scale is dynamic");
  } else if (what == "communication_data_type") {
    set("reduce_dtype", word == "bfp16" || word == "bfloat16" ? "bf16"
                        : word == "float16"                   ? "fp16"
                        : word == "float32"                   ? "fp32"
                                                              : text);
  } else if (what == "steps_per_print") {
    const auto steps = parse_real(text);
    if (!steps || *steps < 1) refuse("is not a number of steps");
    set("logging_steps", strfmt("%.0f", std::min(*steps, 1e15)));
  } else if (what == "optimizer_type") {
    if (word != "adamw" && word != "adam") refuse("\"" + text + "\" is not built yet; AdamW is");
    note(node, key, "used: AdamW");
  } else if (what == "scheduler_type") {
    if (word == "warmuplr") set("lr_scheduler_type", "constant");
    else if (word == "warmupdecaylr") set("lr_scheduler_type", "linear");
    else if (word == "warmupcosinelr") set("lr_scheduler_type", "cosine");
    else refuse("\"" + text + "\" is not built yet; WarmupLR, WarmupDecayLR and WarmupCosineLR are");
  } else if (what == "warmup_min_lr") {
    if (parse_real(text) != std::optional<double>(0.0)) refuse("only 0 is built");
    note(node, key, "used");
  }
}

void ConfigFileReader::external_keys(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  if (is_auto(node)) return note(node, key, "ignored: auto leaves the default");
  if (is_null(node)) return note(node, key, "ignored: null");
  switch (spec.fate) {
    case KeyAction::same:
    case KeyAction::strategy:
      option(spec.target, node, key);
      return note(node, key, std::string("mapped to ") + spec.target + " " + node.text);
    case KeyAction::if_enabled: {
      const std::string text = scalar(node, key);
      if (is_off(text)) return note(node, key, "ignored: off");
      option(spec.target, node, key);
      return note(node, key, std::string("mapped to ") + spec.target);
    }
    case KeyAction::ignored: return note(node, key, std::string("ignored: ") + spec.target);
    case KeyAction::block: return read_block(spec.target, node, key);
    case KeyAction::special: return special(spec, node, key);
  }
}

void ConfigFileReader::read_block(const std::string& block, const io::ConfigNode& node, const std::string& prefix) {
  if (is_null(node)) return;
  if (node.kind != io::ConfigNode::Kind::map) {
    throw Error(ExitCode::usage, prefix + " is not a block of keys", source(node).text, "Indent its keys below it");
  }
  for (const auto& [name, child] : node.entries) {
    const ExternalKeySpec* spec = find_external_key(block, name);
    if (spec == nullptr && block == "fsdp_config")
      spec = find_external_key(block, "fsdp_" + name);  // HF's form has no prefix
    if (spec == nullptr) {
      const std::string near = suggestion(name, keys_of(block));
      throw Error(ExitCode::usage, "unknown key " + prefix + "." + name, source(child).text,
                  near.empty() ? "Remove it" : near);
    }
    external_keys(*spec, child, prefix + "." + name);
  }
}

void ConfigFileReader::read_env(const io::ConfigNode& node) {
  if (is_null(node)) return;
  if (node.kind != io::ConfigNode::Kind::map)
    throw Error(ExitCode::usage, "env is not a block of variables", source(node).text, "Write NAME: value below it");
  for (const auto& [name, child] : node.entries) {
    const bool set_already = std::getenv(name.c_str()) != nullptr;
    if (!set_already) ::setenv(name.c_str(), scalar(child, "env." + name).c_str(), 0);
    note(child, "env." + name, set_already ? "ignored: set in the environment" : "used");
  }
}

void ConfigFileReader::read_top(const io::ConfigNode& root) {
  for (const auto& [name, child] : root.entries) {
    const OptionSpec* spec = find_option(name);
    const bool nested = child.kind == io::ConfigNode::Kind::map;
    const ExternalKeySpec* accelerate = find_external_key("accelerate", name);
    const ExternalKeySpec* deepspeed = find_external_key("deepspeed", name);
    if (name == "env" || name == "ENV") read_env(child);
    else if (name == "deepspeed" && nested) {
      for (const auto& [inner, value] : child.entries) {
        const ExternalKeySpec* known = find_external_key("deepspeed", inner);
        if (known == nullptr) {
          const std::string near = suggestion(inner, keys_of("deepspeed"));
          throw Error(ExitCode::usage, "unknown key deepspeed." + inner, source(value).text,
                      near.empty() ? "Remove it" : near);
        }
        external_keys(*known, value, "deepspeed." + inner);
      }
    } else if (name == "zero_optimization" || (nested && (name == "bf16" || name == "fp16"))) {
      read_block(name, child, name);
    } else if (accelerate != nullptr) external_keys(*accelerate, child, name);
    else if (deepspeed != nullptr && (spec == nullptr || is_auto(child))) external_keys(*deepspeed, child, name);
    else if (spec != nullptr) option(name, child, name);
    else {
      std::vector<std::string> names = option_names();
      for (const char* block : {"accelerate", "deepspeed"}) {
        for (std::string& key : keys_of(block)) names.push_back(std::move(key));
      }
      const std::string near = suggestion(name, names);
      throw Error(ExitCode::usage, "unknown key " + name, source(child).text,
                  near.empty() ? "See tessera train --help-all" : near);
    }
  }
}

void Options::read_file(const std::string& path) {
  if (files_ > 16) throw Error(ExitCode::usage, "configuration files include one another", path, "Remove the circle");
  read_tree(io::read_config(path), path);
}

void Options::read_tree(const io::ConfigNode& root, const std::string& path) {
  const int number = layer::file + files_++;
  ConfigFileReader(*this, path, number).read_top(root);
}

}  // namespace tessera::jobs
