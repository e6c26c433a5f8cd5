// SPDX-License-Identifier: Apache-2.0
// Defaults that depend on --stage and --tuner_type, those that ms-swift documents for fine-tuning, and those of bench.
#include <algorithm>

#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

namespace {

struct StageDefault {
  const char* option;
  const char* full;  // all parameters, or those of --freeze_parameters
  const char* lora;
};
constexpr StageDefault sft_defaults[] = {
    {"learning_rate", "1e-5", "1e-4"},
    {"num_train_epochs", "3", "3"},
    {"weight_decay", "0.1", "0.1"},
    {"adam_beta2", "0.95", "0.95"},
    {"per_device_train_batch_size", "1", "1"},
    {"save_steps", "500", "500"},
};

/// Those of TRL, and with LoRA ms-swift's learning rate. Dropout would make a model differ from its own reference.
constexpr StageDefault preference_defaults[] = {
    {"learning_rate", "1e-6", "1e-4"},
    {"loss_scale", "last_round", "last_round"},
    {"lora_dropout", "0", "0"},
};

constexpr const char* kto_micro_batch = "2";
/// Reward models have the learning rates of fine-tuning: ms-swift's, and those of TRL's examples.
bool is_of_type(const StageDefault& entry, std::string_view type) {
  return type != "rm" || std::string_view(entry.option) != "learning_rate";
}

}  // namespace

void Options::resolve_stage() {
  if ((commands == for_eval || commands == for_tokenize) && given("rlhf_type"))
    decide("stage", "rlhf", "--rlhf_type is given");
  const bool preferences = text("stage") == "rlhf", kto = preferences && text("rlhf_type") == "kto";
  if (text("stage") == "pt") return;
  const bool lora = text("tuner_type") == "lora" || has("adapters");
  const auto set = [this](const char* option, const std::string& value) {
    if (given(option)) return;
    Value& slot = values_.find(option)->second;
    slot.items = {value};
    slot.positions = {0};
    slot.source.text = "default of --stage " + text("stage");
    stage_defaults.push_back(std::string(option) + " " + value);
  };
  const auto replaced = [&](const StageDefault& entry) {
    // The KL of KTO is of answers to other prompts of a micro-batch.
    if (kto && std::string_view(entry.option) == "per_device_train_batch_size") return true;
    return preferences && std::ranges::any_of(preference_defaults, [&](const StageDefault& other) {
             return std::string_view(other.option) == entry.option && is_of_type(other, text("rlhf_type"));
           });
  };
  for (const StageDefault& entry : sft_defaults)
    if (!replaced(entry)) set(entry.option, lora ? entry.lora : entry.full);
  for (const StageDefault& entry : preference_defaults)
    if (preferences && is_of_type(entry, text("rlhf_type"))) set(entry.option, lora ? entry.lora : entry.full);
  if (kto) set("per_device_train_batch_size", kto_micro_batch);
  if (!given("gradient_accumulation_steps") && !given("global_batch_size"))
    stage_defaults.push_back(strfmt("gradient_accumulation_steps for at least %ld samples a step", sft_global_batch));
  if (has("val_dataset") || real("split_dataset_ratio") > 0) set("eval_steps", text("save_steps"));
}

/// A benchmark measures what its options name, and nothing that depends on weights or free memory.
void Options::resolve_bench() {
  if (commands != for_bench) return;
  if (text("mixed_precision") == "auto") decide("mixed_precision", "no", "bench");
  if (!given("gradient_checkpointing")) decide("gradient_checkpointing", "none", "bench");
}

std::string stage_default(const OptionSpec& spec, const std::string& command) {
  std::string stage = command.empty() ? "" : stage_of(command);
  if (!stage.empty() && std::string_view(spec.name) == "stage") return stage;
  const std::string_view name = spec.name;
  const auto of = [&](const StageDefault& entry) {
    return std::string_view(entry.full) == entry.lora ? entry.full
                                                      : std::string(entry.full) + ", with LoRA " + entry.lora;
  };
  if (stage == "rlhf" && stage != command && name == "rlhf_type") return command;
  if (command == "kto" && name == "per_device_train_batch_size") return kto_micro_batch;
  if (stage == "rlhf")
    for (const StageDefault& entry : preference_defaults)
      if (name == entry.option && is_of_type(entry, command)) return of(entry);
  if (stage != "sft" && stage != "rlhf") return spec.default_value;
  if (name == "gradient_accumulation_steps") return strfmt("for at least %ld samples a step", sft_global_batch);
  if (name == "eval_steps") return "save_steps, if there is validation data";
  for (const StageDefault& entry : sft_defaults)
    if (name == entry.option) return of(entry);
  return spec.default_value;
}

std::string stage_line(const Options& options) {
  std::string text;
  for (const std::string& chosen : options.stage_defaults) text += (text.empty() ? "" : ", ") + chosen;
  return text.empty() ? text : options.text("stage") + ", with its defaults " + text;
}

}  // namespace tessera::jobs
