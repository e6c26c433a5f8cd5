// The table of options that are not built.
#include "jobs/cli/options/unsupported.hpp"

#include <algorithm>

#include "jobs/cli/options/table.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* off_values = "false|none|no|off|0";
constexpr const char* lora_missing = "LoRA is missing: all parameters are trained";
constexpr const char* preferences_missing = "Preference training is missing: tessera train trains on plain text";
constexpr const char* chat_missing = "Chat templates are missing: write the finished text to the data file";

}  // namespace

const std::vector<UnsupportedOption>& unsupported_options() {
  // One option per line.
  // clang-format off
  static const std::vector<UnsupportedOption> options = {
      // Model and data.
      {"report_to", "jsonl|none", "Every run writes logging.jsonl"},
      {"model_type", "gpt2|llama|qwen2|qwen3|qwen3_moe|mixtral", "The family is that of config.json"},
      {"torch_dtype", "float32|fp32|auto", "Parameters are fp32: use --mixed_precision bf16 to compute in bf16"},
      {"init_scheme", "default", "Each model family has its own initialization"},
      {"attn_impl", "auto|flash", "Attention is always tiled (flash attention): on GPUs, use --attention"},
      {"rope_scaling", "none", "Set rope_scaling in the model's config.json"},
      {"sliding_window", off_values, "Attention covers the whole sample: use --max_length to shorten samples"},
      {"max_model_len", "", "Set max_position_embeddings in the model's config.json, and --max_length"},
      {"columns", "", "Name the column \"text\" in the .jsonl file"},
      {"truncation_strategy", "split", "A document longer than a sample is split over several"},
      {"template", "none", chat_missing},
      {"system", "", chat_missing},
      {"loss_scale", "default|all", "Every token has the same weight in the loss; fp16: use --initial_scale_power"},
      {"dataset_num_proc", "1", "Tokenize in parallel with mpirun and tessera tokenize"},
      {"streaming", off_values, "Write a token file with tessera tokenize: it is not loaded into memory"},
      {"strict", "true", "An invalid record always ends the run: remove it from the data"},
      // Parallelism.
      {"offload_params offload_param", off_values, "Shard parameters over more ranks: use --zero_stage 3"},
      {"offload_optimizer", off_values, "Shard the optimizer state over more ranks: use --zero_stage 1 or higher"},
      {"cpu_offload", off_values, "Shard parameters and optimizer state over more ranks: use --zero_stage 3"},
      {"megatron_lm_config", "", "Tensor and pipeline parallelism are missing: use fsdp_config or deepspeed_config"},
      {"zero_hpz_partition_size", "false|0|1", "A secondary copy of parameters is missing: use --shard_group_size"},
      {"zero_quantized_weights", off_values, "Quantized communication is missing: use --mixed_precision bf16"},
      {"zero_quantized_gradients", off_values, "Quantized communication is missing: use --reduce_dtype bf16"},
      // Fine-tuning.
      {"stage", "pt", "Only training on plain text is built"},
      {"tuner_type train_type", "full", lora_missing},
      {"lora_rank", "", lora_missing},
      {"lora_alpha", "", lora_missing},
      {"lora_dropout", "", lora_missing},
      {"target_modules", "", lora_missing},
      {"target_regex", "", lora_missing},
      {"modules_to_save", "", lora_missing},
      {"use_rslora", off_values, lora_missing},
      {"lorap_lr_ratio", "", lora_missing},
      {"adapters", "", "Adapters are missing: give the full model with --model"},
      {"rlhf_type", "", preferences_missing},
      {"beta", "", preferences_missing},
      {"loss_type", "", preferences_missing},
      {"label_smoothing", "0|0.0", "Targets are not smoothed"},
      {"rpo_alpha", "", preferences_missing},
      {"ref_model", "", preferences_missing},
      {"precompute_ref_log_probs", off_values, preferences_missing},
      {"desirable_weight", "", preferences_missing},
      {"undesirable_weight", "", preferences_missing},
      {"center_rewards_coefficient", "", preferences_missing},
      // Logging.
      {"log_level", "info", "Use --quiet to print warnings and errors only"},
      {"log_ranks", "0", "Rank 0 prints for all: use --profile_steps for a trace of each rank"},
      {"profile_memory", off_values, "Use tessera plan for a rank's memory; each step line has the memory in use"},
  };
  // clang-format on
  return options;
}

const UnsupportedOption* find_unsupported(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const UnsupportedOption& option : unsupported_options()) {
    for (const std::string& known : split_words(option.names, ' '))
      if (known == wanted) return &option;
  }
  return nullptr;
}

void check_unsupported(const UnsupportedOption& option, const std::vector<std::string>& values,
                       const std::string& where) {
  const std::vector<std::string> accepted = split_words(option.accepted, '|');
  for (const std::string& value : values) {
    if (std::find(accepted.begin(), accepted.end(), canonical_spelling(value)) != accepted.end()) continue;
    throw Error(ExitCode::usage, "--" + split_words(option.names, ' ').front() + " " + value + ": not built yet", where,
                option.message + (accepted.empty() ? std::string() : ". Accepted: " + alternatives(option.accepted)));
  }
}

std::string unsupported_command(std::string_view command) {
  if (command == "export") return "Use tessera convert --to hf";
  if (command == "pt") return "Use tessera train: it trains on plain text";
  if (command == "sft" || command == "rlhf" || command == "dpo")
    return std::string(command) + " is not built yet: tessera train trains on plain text";
  if (command == "merge_lora" || command == "report" || command == "template")
    return std::string(command) + " is not built yet. Commands: " + command_names();
  return "";
}

}  // namespace tessera::jobs
