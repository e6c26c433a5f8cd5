// SPDX-License-Identifier: Apache-2.0
// Keys of accelerate and DeepSpeed files whose values need arithmetic, or stand for several options.
#include "jobs/cli/options/config_files.hpp"

#include <algorithm>

namespace tessera::jobs {

namespace {

/// A positive number of ranks; nothing for other texts.
std::optional<std::int64_t> ranks(const std::string& text) {
  const auto number = parse_integer(text);
  return number && *number >= 1 ? number : std::nullopt;
}

}  // namespace

void ConfigFileReader::set(const char* option_name, const std::string& value, const io::ConfigNode& node,
                           const std::string& key) {
  options_.assign(option_name, {value}, source(node));
  note(node, key, Outcome::mapped, std::string("mapped to ") + option_name + " " + value, option_name);
}

void ConfigFileReader::custom(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key) {
  const std::string what = spec.target;
  if (what == "parallelism_config") return parallelism_config(node, key);
  if (what == "zero_optimization") return zero_optimization(node, key);
  if (what == "bf16" || what == "fp16") return precision_block(what, node, key);
  if (what == "scheduler") return scheduler(node, key);
  if (what == "betas") return betas(node, key);
  if (what == "monitor") return monitor(node, key);
  const bool read = custom_accelerate(what, node, key) || custom_deepspeed(what, node, key);
  TESSERA_ASSERT(read, "no reader of %s", key.c_str());
}

bool ConfigFileReader::custom_accelerate(const std::string& what, const io::ConfigNode& node, const std::string& key) {
  if (what == "distributed_type") {
    const std::string text = scalar(node, key), word = canonical_spelling(text);
    if (word == "multi_cpu" || word == "multi_gpu") set("sharding_strategy", "NO_SHARD", node, key);
    else if (word == "fsdp" || word == "deepspeed" || word == "no")
      note(node, key, Outcome::used, "see fsdp_config, deepspeed_config and parallelism_config");
    else refuse(node, key + " " + text + ": not built yet", "Use FSDP, DEEPSPEED, MULTI_GPU, MULTI_CPU or NO");
  } else if (what == "num_processes") {
    const auto count = parse_integer(scalar(node, key));
    if (!count || *count == 0 || *count < -1) refuse(node, key + " " + node.text + ": expected a number of ranks");
    if (*count < 0) note(node, key, Outcome::harmless, "set by the launcher (mpirun, srun)");
    else if ((options_.commands & for_plan) != 0) set("world_size", node.text, node, key);
    else note(node, key, Outcome::harmless, "set by the launcher: tessera launch -n " + node.text);
  } else if (what == "fsdp_sharding_strategy") {
    static constexpr const char* by_number[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                "HYBRID_SHARD_ZERO2"};
    const auto number = parse_integer(scalar(node, key));
    set("sharding_strategy", number && *number >= 1 && *number <= 5 ? by_number[*number - 1] : node.text, node, key);
  } else if (what == "fsdp_reshard") {
    const auto on = parse_flag(canonical_spelling(scalar(node, key)));
    set("sharding_strategy", on ? (*on ? "FULL_SHARD" : "SHARD_GRAD_OP") : node.text, node, key);
  } else if (what == "deepspeed_file") {
    if (is_off(scalar(node, key))) return note(node, key, Outcome::harmless, "no file"), true;
    note(node, key, Outcome::used);
    options_.read_included(node.text, precedence_, "");
  } else if (what == "save_16bit") {
    const auto on = parse_flag(scalar(node, key));
    if (!on) refuse(node, key + " " + node.text + ": expected true or false");
    if (*on) options_.save_16bit = source(node);
    note(node, key, *on ? Outcome::mapped : Outcome::harmless,
         *on ? "mapped to save_dtype, the dtype of mixed_precision" : "the model is saved with save_dtype",
         "save_dtype");
  } else {
    return false;
  }
  return true;
}

bool ConfigFileReader::custom_deepspeed(const std::string& what, const io::ConfigNode& node, const std::string& key) {
  const std::string text = scalar(node, key), word = canonical_spelling(text);
  if (what == "mics_shard_size") {
    const auto size = parse_integer(text);
    if (!size) refuse(node, key + " " + text + ": expected a number of ranks");
    if (*size < 0) note(node, key, Outcome::harmless, "off");
    else set("shard_group_size", text, node, key);
  } else if (what == "fixed_loss_scale") {
    if (parse_real(text) != std::optional<double>(0.0))
      refuse(node, key + " " + text + ": a fixed loss scale is not built yet", "Use 0, the dynamic loss scale");
    note(node, key, Outcome::used, "the loss scale is dynamic");
  } else if (what == "communication_data_type") {
    set("reduce_dtype",
        word == "bfp16" || word == "bfloat16" ? "bf16"
        : word == "float16"                   ? "fp16"
        : word == "float32"                   ? "fp32"
                                              : text,
        node, key);
  } else if (what.starts_with("zero_quantized_")) {
    const auto on = parse_flag(text);
    const bool gradients = what == "zero_quantized_gradients", frozen = what == "zero_quantized_nontrainable_weights";
    if (!on) refuse(node, key + " " + text + ": expected true or false");
    if (!*on) note(node, key, Outcome::harmless, "off");
    else if (frozen && options_.text("gather_dtype") == "int8") note(node, key, Outcome::used, "see gather_dtype");
    else set(gradients ? "reduce_dtype" : "gather_dtype", frozen ? "int8_frozen" : "int8", node, key);
  } else if (what == "optimizer_type") {
    if (word != "adamw" && word != "adam" && word != "sgd")
      refuse(node, key + " " + text + ": not built yet", "Use AdamW or SGD");
    set("optim", word == "sgd" ? "sgd" : "adamw", node, key);
  } else {
    return false;
  }
  return true;
}

/// dp_replicate_size R, dp_shard_size S, cp_size or sp_size C, and tp_size T: groups of C ranks share rows, or groups
/// of T matrices, and there are R copies, each sharded over S·C·T ranks. Other axes must have the size 1.
void ConfigFileReader::parallelism_config(const io::ConfigNode& node, const std::string& key) {
  if (node.kind != io::ConfigNode::Kind::map)
    refuse(node, key + ": expected a block of keys", "Indent its keys below it");
  std::optional<std::int64_t> replicas, shards;
  std::int64_t context = 1, tensor = 1;
  const io::ConfigNode* at = &node;
  for (const auto& [name, child] : node.entries) {
    const std::string full = name.starts_with("parallelism_config_") ? name : "parallelism_config_" + name;
    const bool replicate = full.ends_with("_dp_replicate_size");
    const bool shares = full.ends_with("_cp_size") || full.ends_with("_sp_size"), divides = full.ends_with("_tp_size");
    keep_refusals(child, key + "." + name, [&] {
      if (!replicate && !shares && !divides && !full.ends_with("_dp_shard_size"))
        return apply_of("parallelism_config", name, child, key + "." + name);
      const auto size = ranks(scalar(child, key));
      if (!size) refuse(child, key + "." + name + " " + child.text + ": expected a number of ranks");
      if (shares && *size > 1 && context > 1)
        refuse(child, key + ": cp_size and sp_size are both above 1, and there is one way in which ranks share rows",
               "Keep one of the two");
      if (divides) tensor = *size;
      else if (shares) context = std::max(context, *size);
      else (replicate ? replicas : shards) = size, at = &child;
      note(child, key + "." + name, Outcome::used);
    });
  }
  if (context > 1) set("context_parallel_size", std::to_string(context), node, key);
  if (tensor > 1) set("tensor_parallel_size", std::to_string(tensor), node, key);
  const std::int64_t groups = replicas.value_or(1), each = shards.value_or(1) * context * tensor;
  if (groups == 1) return;  // one group of all ranks: sharded as fsdp_config says
  if (each == 1) return set("sharding_strategy", "NO_SHARD", *at, key);
  options_.request_strategy(key, "replicated_groups", source(*at));
  set("shard_group_size", std::to_string(each), *at, key);
}

/// The block, or DeepSpeed's older form: true is stage 1.
void ConfigFileReader::zero_optimization(const io::ConfigNode& node, const std::string& key) {
  if (node.kind == io::ConfigNode::Kind::map) return read_block("zero_optimization", node, key);
  const auto on = parse_flag(scalar(node, key));
  if (!on) refuse(node, key + ": expected a block of keys", "Write \"stage\": 3 in it");
  set("zero_stage", *on ? "1" : "0", node, key);
}

/// bf16 or fp16. Without an `enabled` that is on, the block is off, as DeepSpeed's. Then it refuses unknown keys and,
/// since what it sets is for a precision that another source may ask for, values that no run can have; nothing else.
void ConfigFileReader::precision_block(const std::string& block, const io::ConfigNode& node, const std::string& key) {
  const io::ConfigNode* enabled = node.kind == io::ConfigNode::Kind::map ? node.find("enabled") : nullptr;
  const bool on = enabled != nullptr && enabled->kind == io::ConfigNode::Kind::scalar && !is_off(enabled->text);
  if (on || node.kind != io::ConfigNode::Kind::map || node.entries.empty()) {
    read_block(block, node, key);
  } else {
    if (enabled == nullptr) note(node, key, Outcome::harmless, by_enabled);
    // An explicit no is one for what bf16 weights choose by default, too.
    const bool turns_off = block == "bf16" && enabled != nullptr && parse_flag(enabled->text) == false;
    if (turns_off) set("bf16", "false", *enabled, key + ".enabled");
    for (const auto& [name, child] : node.entries)
      keep_refusals(child, key + "." + name, [&] {
        const ExternalKeySpec* spec = find_external_key(block, name);
        if (spec == nullptr || spec->action == KeyAction::set) apply_of(block, name, child, key + "." + name);
        else if (&child != enabled || !turns_off) note(child, key + "." + name, Outcome::harmless, "off");
      });
  }
  if (!on || block != "fp16") return;
  if (node.find("hysteresis") == nullptr) default_of(*enabled, key + ".hysteresis", "hysteresis", "2");
  if (node.find("loss_scale_window") == nullptr)
    default_of(*enabled, key + ".loss_scale_window", "loss_scale_window", "1000");
}

void ConfigFileReader::default_of(const io::ConfigNode& at, const std::string& key, const char* option_name,
                                  const char* value) {
  options_.assign(option_name, {value}, {precedence::preset, source(at).text + ", DeepSpeed's default"});
  note(at, key, Outcome::mapped, std::string("DeepSpeed's default, mapped to ") + option_name + " " + value,
       option_name);
}

void ConfigFileReader::betas(const io::ConfigNode& node, const std::string& key) {
  if (node.kind != io::ConfigNode::Kind::list || node.items.size() != 2)
    refuse(node, key + ": expected a list of two numbers");
  options_.assign("adam_beta1", {scalar(node.items[0], key)}, source(node));
  options_.assign("adam_beta2", {scalar(node.items[1], key)}, source(node));
  note(node, key, Outcome::mapped, "mapped to adam_beta1, adam_beta2", "adam_beta1");
}

/// "tensorboard", "wandb", … with an `enabled`: --report_to that word.
void ConfigFileReader::monitor(const io::ConfigNode& node, const std::string& key) {
  if (!is_enabled(node, /*without=*/false)) return note(node, key, Outcome::harmless, "off");
  const std::string word = key == "csv_monitor" ? "csv" : key;
  options_.assign("report_to", {word}, source(node));
  note(node, key, Outcome::mapped, "mapped to report_to " + word + ", in the run's directory", "report_to");
}

/// DeepSpeed's schedules. A parameter that is left out has DeepSpeed's default, which any other source overrides.
void ConfigFileReader::scheduler(const io::ConfigNode& node, const std::string& key) {
  if (node.kind != io::ConfigNode::Kind::map)
    refuse(node, key + ": expected a block of keys", "Indent its keys below it");
  const io::ConfigNode* type = node.find("type");
  const io::ConfigNode* params = node.find("params");
  if (type != nullptr && type->kind == io::ConfigNode::Kind::null) {
    note(*type, key + ".type", Outcome::harmless, "null leaves the default");
  } else if (type != nullptr) {
    const std::string word = canonical_spelling(scalar(*type, key));
    const bool cosine = word == "warmupcosinelr";
    if (!cosine && word != "warmuplr" && word != "warmupdecaylr")
      refuse(*type, key + ".type " + type->text + ": not built yet", "Use WarmupLR, WarmupDecayLR or WarmupCosineLR");
    set("lr_scheduler_type",
        cosine               ? "cosine_with_min_lr"
        : word == "warmuplr" ? "constant"
                             : "linear",
        *type, key + ".type");
    const auto without = [&](const char* name, const char* option_name, const char* value) {
      if (params == nullptr || params->find(name) == nullptr)
        default_of(*type, key + ".params." + name, option_name, value);
    };
    without("warmup_type", "warmup_type", "log");
    without("warmup_num_steps", "warmup_steps", "1000");
    if (cosine) without("cos_min_ratio", "min_lr_rate", "0.0001");
    else without("warmup_max_lr", "learning_rate", "0.001");
  }
  for (const auto& [name, child] : node.entries)
    if (name != "type")
      keep_refusals(child, key + "." + name, [&] { apply_of("scheduler", name, child, key + "." + name); });
}

}  // namespace tessera::jobs
