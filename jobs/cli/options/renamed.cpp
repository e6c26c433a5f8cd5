// SPDX-License-Identifier: Apache-2.0
// The table of options and values that have another name here.
#include "jobs/cli/options/renamed.hpp"

#include <algorithm>
#include <cctype>

#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/refusals.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* off_words = "false|none|no|off|0";
constexpr const char* all_of_them = "LLaMA-Factory, axolotl and TRL";
constexpr const char* four_bits = "--quant_method bnb --quant_bits 4, with --tuner_type lora";
constexpr const char* eight_bits = "--quant_method bnb --quant_bits 8, with --tuner_type lora";

}  // namespace

const std::vector<RenamedOption>& renamed_options() {
  // One option per line.
  // clang-format off
  static const std::vector<RenamedOption> options = {
      // Model.
      {"base_model base_model_config", "", "axolotl", "--model"},
      {"revision_of_model", "none", "axolotl", "--model_revision"},
      {"random_init_weights", off_words, "axolotl", "--from_scratch"},
      {"overrides_of_model_config overrides_of_model_kwargs", "none", "axolotl", "Set it in the model's config.json"},
      {"adapter_name_or_path", "none", "LLaMA-Factory", "--adapters"},
      {"lora_model_dir", "none", "axolotl", "--adapters"},
      {"train_from_scratch", off_words, "LLaMA-Factory", "--from_scratch"},
      {"load_in_4bit use_4bit", off_words, all_of_them, four_bits},
      {"load_in_8bit use_8bit", off_words, all_of_them, eight_bits},
      {"quantization_bit bits", "none|0", "LLaMA-Factory", "--quant_bits, and --quant_method bnb with it"},
      {"quantization_method", "none", "LLaMA-Factory", "--quant_method bnb"},
      {"quantization_type", "none", "LLaMA-Factory", "--bnb_4bit_quant_type"},
      {"double_quantization", "none", "LLaMA-Factory", "--bnb_4bit_use_double_quant"},
      {"bnb_config_kwargs", "none", "axolotl", "--bnb_4bit_quant_type and --bnb_4bit_use_double_quant"},
      {"gptq qat quantization", off_words, "axolotl", "Only --quant_method bnb is built"},
      {"float16", off_words, "axolotl", "--fp16"},
      {"infer_dtype", "auto", "LLaMA-Factory", "--mixed_precision"},
      {"tokenizer_config tokenizer_name_or_path", "none", "axolotl", "--tokenizer"},
      {"special_tokens", "none", "axolotl", "--eos_token for the token that ends a document; the others are those of the model's tokenizer files"},
      {"tokens added_tokens_overrides resize_token_embeddings_to_32x shrink_embeddings add_tokens add_special_tokens resize_vocab", off_words, "LLaMA-Factory and axolotl", "The vocabulary cannot grow: add tokens to the model beforehand"},
      // What is trained.
      {"use_peft use_lora", off_words, "TRL", "--tuner_type lora (TRL's defaults are --lora_rank 16 --lora_alpha 32 --lora_dropout 0.05)"},
      {"finetuning_type", "none", "LLaMA-Factory", "--tuner_type full or lora; for freeze --trainable_parameters"},
      {"sft_type", "none", "ms-swift 2", "--tuner_type full or lora"},
      {"adapter", "none", "axolotl", "--tuner_type lora; for qlora with --quant_method bnb --quant_bits 4"},
      {"lora_r", "none", "axolotl and TRL", "--lora_rank"},
      {"lora_target lora_target_modules", "none", all_of_them, "--target_modules; all is all-linear"},
      {"lora_target_linear", off_words, "axolotl", "--target_modules all-linear"},
      {"additional_target lora_modules_to_save", "none", "LLaMA-Factory and axolotl", "--modules_to_save"},
      {"peft_use_rslora", off_words, "axolotl", "--use_rslora"},
      {"peft_use_dora", off_words, "axolotl", "DoRA is missing: use --tuner_type lora"},
      {"loraplus_lr_ratio", "none", "LLaMA-Factory and axolotl", "--lorap_lr_ratio"},
      {"loraplus_lr_embedding", "none", "LLaMA-Factory and axolotl", "--param_groups"},
      {"freeze_trainable_layers freeze_trainable_modules freeze_extra_modules unfrozen_parameters", "none", "LLaMA-Factory and axolotl", "--trainable_parameters"},
      {"create_new_adapter", off_words, "LLaMA-Factory", "Merge the first adapter into the model: tessera convert --merge_lora true"},
      {"pissa_init", off_words, "LLaMA-Factory", "--init_lora_weights; PiSSA is missing"},
      {"rl", "none", "axolotl", "--stage rlhf --rlhf_type"},
      {"rl_beta orpo_alpha", "none", "axolotl", "--beta"},
      {"kto_desirable_weight", "", "axolotl", "--desirable_weight"},
      {"kto_undesirable_weight", "", "axolotl", "--undesirable_weight"},
      {"dpo_use_weighting", off_words, "axolotl", "--use_weighting"},
      {"trl", "none", "axolotl", "--rlhf_type and the options of it"},
      // Data.
      {"datasets", "none", "axolotl", "--dataset with the files: path is the file, and type (alpaca, chat_template, ...) is found by the keys of its rows"},
      {"test_datasets", "none", "axolotl", "--val_dataset with the files"},
      {"pretraining_dataset", "none", "axolotl", "--stage pt, with the files in --dataset"},
      {"dataset_dir", "none", "LLaMA-Factory", "--dataset with the paths of the files: names of dataset_info.json are not read"},
      {"dataset_name dataset_path data_path train_file", "none", "TRL", "--dataset with the files"},
      {"validation_file", "none", "TRL", "--val_dataset with the files"},
      {"dataset_text_field", "text|none", "TRL", "--columns '{\"NAME\": \"text\"}'"},
      {"dataset_config dataset_train_split dataset_test_split", "none|train|test", "TRL", "--dataset and --val_dataset with the files"},
      {"max_samples train_dataset_sample", "none|_1", "LLaMA-Factory", "--dataset FILE#N for N rows of a file, chosen by --data_seed"},
      {"val_size val_set_size dataset_test_ratio", "none|0|0.0", "LLaMA-Factory and axolotl", "--split_dataset_ratio for a share, below 1; for a number of rows --val_dataset FILE#N"},
      {"cutoff_len sequence_len max_packed_sequence_len max_seq_length max_seq_len model_max_length", "none", all_of_them, "--max_length, and --truncation_strategy right to shorten longer conversations as they do"},
      {"excess_length_strategy", "none", "axolotl", "--truncation_strategy delete or right"},
      {"sample_packing", off_words, "axolotl", "--packing"},
      {"neat_packing", off_words, "LLaMA-Factory", "--packing, which always keeps documents apart"},
      {"chat_template chat_template_path", "none|tokenizer_default", "axolotl and TRL", "--template, or leave it out for the model's own"},
      {"chat_template_jinja", "none", "axolotl", "--template with a file"},
      {"default_system default_system_message system_prompt", "none", "LLaMA-Factory and axolotl", "--system"},
      {"train_on_prompt train_on_inputs", off_words, "LLaMA-Factory and axolotl", "--loss_scale all"},
      {"mask_history", off_words, "LLaMA-Factory", "--loss_scale last_round"},
      {"completion_only_loss assistant_only_loss", "true|1|yes|none", "TRL", "--loss_scale all for a loss on every text"},
      {"tokenized_path", "none", "LLaMA-Factory", "tessera tokenize, and its output in --dataset"},
      {"dataset_exact_deduplication", off_words, "axolotl", "Rows are not compared: remove duplicates beforehand"},
      {"shuffle_merged_datasets", "true|1|yes|none", "axolotl", "--dataset_shuffle false"},
      {"mix_strategy", "concat|none", "LLaMA-Factory", "--dataset FILE:0.3 for the share of each file"},
      {"interleave_probs", "none", "LLaMA-Factory", "--dataset FILE:0.3 for the share of each file"},
      // Batch, optimizer, steps.
      {"eval_batch_size", "none", "axolotl", "--per_device_eval_batch_size"},
      {"batch_size", "none", "axolotl", "--global_batch_size for all ranks, or --per_device_train_batch_size"},
      {"num_epochs", "none", "axolotl", "--num_train_epochs"},
      {"optimizer", "none", "axolotl", "--optim"},
      {"scheduler", "none", "axolotl", "--lr_scheduler_type"},
      {"cosine_min_lr_ratio", "none", "axolotl", "--lr_scheduler_type cosine_with_min_lr with --min_lr_rate"},
      {"evals_per_epoch", "none|0", "axolotl", "--eval_steps 1/(E*N), a share of all steps, with E epochs and N evaluations an epoch"},
      {"saves_per_epoch", "none|0", "axolotl", "--save_steps 1/(E*N), a share of all steps, with E epochs and N checkpoints an epoch"},
      {"eval_table_size eval_max_new_tokens eval_causal_lm_metrics do_causal_lm_eval do_bench_eval", off_words, "axolotl", "--prompt_file with --eval_generate_steps, which prints answers during the run"},
      {"gpu_memory_limit", "none", "axolotl", "--device_memory"},
      {"auto_resume_from_checkpoints", off_words, "axolotl", "--resume_from_checkpoint auto"},
      {"early_stopping_patience", "none", "axolotl", "Early stopping is missing: --load_best_model_at_end"},
      {"loss_watchdog_threshold loss_watchdog_patience", "none", "axolotl", "A loss that is not finite ends the run; other limits are missing"},
      {"disable_gradient_checkpointing", off_words, "LLaMA-Factory", "--gradient_checkpointing none"},
      {"pure_bf16", off_words, "LLaMA-Factory", "--bf16, with fp32 master weights"},
      {"moe_aux_loss_coef", "none", "LLaMA-Factory", "router_aux_loss_coef in the model's config.json"},
      {"sequence_parallel_degree", "1|none", "axolotl", "--context_parallel_size"},
      {"tensor_model_parallel_size", "1|none", "Megatron", "--tensor_parallel_size"},
      {"pipeline_model_parallel_size", "1|none", "Megatron", "Pipeline parallelism is missing: --zero_stage 3"},
      {"plugins", "none", "axolotl", "No Python is run: norms, activations and the loss are fused kernels already"},
      {"pref_beta", "none", "LLaMA-Factory", "--beta"},
      {"pref_loss", "none", "LLaMA-Factory", "--loss_type; simpo and orpo are --rlhf_type simpo, orpo"},
      {"pref_ftx", "0|0.0|none", "LLaMA-Factory", "--rpo_alpha"},
      {"dpo_label_smoothing", "0|0.0|none", "LLaMA-Factory", "--label_smoothing"},
      {"kto_chosen_weight", "", "LLaMA-Factory", "--desirable_weight"},
      {"kto_rejected_weight", "", "LLaMA-Factory", "--undesirable_weight"},
      {"ppo_* reward_model* process_reward_model ref_model_adapters ref_model_quantization_bit", "none", "LLaMA-Factory", "PPO and reward models are missing: --rlhf_type dpo"},
      {"use_unsloth use_unsloth_gc shift_attn mixture_of_depths use_badam use_apollo use_adam_mini use_muon use_llama_pro use_swanlab fp8", off_words, "LLaMA-Factory", "It is missing: leave it out"},
      // Generation and export.
      {"max_batch_size", "none", "ms-swift", "--per_device_eval_batch_size"},
      {"result_path", "none", "ms-swift", "--json, and > FILE behind the command"},
      {"eval_human", off_words, "ms-swift 2", "--chat"},
      {"query input_text", "none", "ms-swift", "--prompt"},
      {"ckpt_dir", "none", "ms-swift 2", "--adapters for an adapter, or --model"},
      {"export_dir", "none", "LLaMA-Factory", "tessera convert --out"},
      {"export_size", "none", "LLaMA-Factory", "--max_shard_size"},
      {"export_quantization_bit export_quantization_dataset", "none", "LLaMA-Factory", "Models are not quantized on export: --quant_bits quantizes as a model is read"},
  };
  // clang-format on
  return options;
}

const RenamedOption* find_renamed(std::string_view name) {
  for (const RenamedOption& option : renamed_options())
    if (is_named(option.names, name)) return &option;
  return nullptr;
}

void check_renamed(const RenamedOption& option, const std::string& name, const std::vector<std::string>& values,
                   const std::string& where) {
  const std::vector<std::string> accepted = split_words(option.accepted, '|');
  const bool asks = std::ranges::any_of(values, [&](const std::string& value) {
    return std::ranges::find(accepted, canonical_spelling(value)) == accepted.end();
  });
  if (!asks && !values.empty()) return;
  std::string typed = "--" + name;
  for (const std::string& value : values) typed += " " + value;
  const bool sentence = std::isupper(static_cast<unsigned char>(option.instead[0])) != 0;
  throw RefusedOption(RefusedOption::Group::other_name, typed + ": a name of " + option.tools, where,
                      (sentence ? "" : "Use ") + std::string(option.instead));
}

std::string value_instead(const OptionSpec& spec, const std::string& value) {
  struct Row {
    const char *option, *values, *instead;
  };
  // clang-format off
  static constexpr Row rows[] = {
      {"tuner_type", "qlora", "Use --tuner_type lora --quant_method bnb --quant_bits 4"},
      {"tuner_type", "freeze", "Use --tuner_type full with --freeze_parameters or --trainable_parameters"},
      {"tuner_type", "none", "Use --tuner_type full"},
      {"optim", "paged_adamw_8bit paged_adamw_bnb_8bit", "Use --optim adamw_8bit; --offload_optimizer cpu keeps its states in host memory"},
      {"optim", "paged_adamw paged_adamw_32bit", "Use --optim adamw; --offload_optimizer cpu keeps its states in host memory"},
      {"optim", "adamw_hf adamw_apex_fused adamw_anyprecision adamw_torch_xla adamw_torch_4bit adamw_torch_8bit", "Use --optim adamw, or adamw_8bit"},
      {"optim", "adafactor galore_adamw* apollo_adamw* lion* adamw_torch_4bit", "Use --optim adamw_8bit for smaller states"},
      {"quant_method", "bitsandbytes", "Use --quant_method bnb"},
      {"quant_method", "hqq eetq gptq awq fp8 quanto", "Use --quant_method bnb with --quant_bits 4 or 8"},
      {"lr_scheduler_type", "cosine_with_restarts polynomial inverse_sqrt reduce_lr_on_plateau cosine_warmup_with_min_lr", "Use cosine, linear or wsd"},
      {"stage", "dpo kto cpo orpo simpo rm", "Use --stage rlhf --rlhf_type with it"},
      {"stage", "ppo grpo gkd", "Not built yet: use --stage rlhf --rlhf_type dpo, kto, cpo, simpo, orpo or rm"},
      {"rlhf_type", "ppo grpo gkd rloo", "Not built yet: use dpo, kto, cpo, simpo, orpo or rm"},
      {"loss_type", "aot_pair", "TRL 1 calls it aot_unpaired: use --loss_type aot_unpaired"},
      {"loss_type", "simpo orpo", "It is a type of its own: use --rlhf_type"},
      {"mixed_precision", "fp8", "FP8 is missing: use bf16"},
      {"packing_strategy", "bfd bfd_split bfd_requeue", "Use --packing_strategy binpack"},
      {"packing_strategy", "wrapped", "Use --packing_strategy sequential"},
      {"truncation_strategy", "drop raise", "Use --truncation_strategy delete"},
      {"truncation_strategy", "truncate keep_start truncation_right", "Use --truncation_strategy right"},
      {"loss_scale", "none", "Leave it out: the default is --loss_scale default"},
      {"save_strategy", "best", "Use --metric_for_best_model loss with --save_strategy steps: the best checkpoint is kept"},
  };
  // clang-format on
  for (const Row& row : rows)
    if (row.option == std::string_view(spec.name) && is_named(row.values, canonical_spelling(value)))
      return row.instead;
  return "";
}

}  // namespace tessera::jobs
