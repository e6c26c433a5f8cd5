// SPDX-License-Identifier: Apache-2.0
// The table of options that are not built.
#include "jobs/cli/options/unsupported.hpp"

#include <algorithm>

#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/refusals.hpp"
#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* off_values = "false|none|no|off|0";

}  // namespace

const std::vector<UnsupportedOption>& unsupported_options() {
  // One option per line.
  // clang-format off
  static const std::vector<UnsupportedOption> options = {
      // Model and data.
      {"init_scheme", "default", "Each model family has its own initialization"},
      {"rope_scaling", "none", "Set rope_scaling in the model's config.json"},
      {"sliding_window", off_values, "It is the model's: config.json has it"},
      {"max_model_len", "", "Set max_position_embeddings in the model's config.json, and --max_length"},
      {"streaming", off_values, "Write a token file with tessera tokenize: it is not loaded into memory"},
      {"task_type", "causal_lm", "Classification, embedding and reranking are missing"},
      {"num_labels", "", "Classification is missing"},
      {"problem_type", "", "Classification is missing"},
      {"new_special_tokens", "", "The vocabulary cannot grow: add tokens to the model beforehand"},
      {"init_strategy", "", "Every parameter of a model is read; see --from_scratch"},
      {"hub_token", "", "Nothing is downloaded: remove it, and do not put a token on a command line"},
      {"model_kwargs", "", "Set what the model needs in its config.json"},
      {"custom_register_path", "", "No Python is run: a model family is C++, see docs/adding-a-model.md"},
      {"external_plugins", "", "No Python is run"},
      {"custom_dataset_info", "", "Give the files with --dataset"},
      {"load_args", off_values, "Give the options again, or in a configuration file"},
      {"load_data_args", off_values, "Give the options again, or in a configuration file"},
      {"cached_dataset", "", "Use --cache_dir"},
      {"val_dataset_shuffle", off_values, "Validation rows are read in order"},
      {"train_dataloader_shuffle", "true|1|yes", "Use --dataset_shuffle false"},
      {"dataloader_drop_last", off_values, "The last, partial batch is trained on too"},
      {"interleave_prob", "", "Give the share of each file with --dataset"},
      {"stopping_strategy", "first_exhausted", "Give the share of each file with --dataset"},
      {"agent_template", "", "Tools are rendered by the model's chat template"},
      {"use_chat_template", "true|1|yes", "Use --stage pt to train on plain text"},
      {"padding_side", "right", "Shorter samples are padded on the right"},
      {"response_prefix", "", "Write it in the rows"},
      {"max_epochs", "", "Use --num_train_epochs"},
      {"router_aux_loss_coef", "", "Set router_aux_loss_coef in the model's config.json"},
      {"neftune_noise_alpha", "0|0.0|none", "Noise on embeddings is missing"},
      {"enable_dft_loss", off_values, "The loss is cross-entropy"},
      {"enable_channel_loss", off_values, "The loss is not split by channel"},
      {"predict_with_generate", off_values, "Evaluation computes the loss"},
      {"eval_delay", "0", "Use --eval_steps"},
      {"logging_strategy", "steps", "Use --logging_steps"},
      {"acc_strategy", "token", "Accuracy is counted by token"},
      {"auto_find_batch_size", off_values, "tessera plan --device_memory BYTES prints the largest micro-batch that fits"},
      {"bf16_full_eval fp16_full_eval", off_values, "Evaluation computes in the dtype of training: use --bf16 or --fp16"},
      {"do_predict", off_values, "Use tessera generate"},
      {"adafactor", off_values, "Use --optim adamw_8bit for a smaller state"},
      {"label_smoothing_factor", "0|0.0", "Targets are not smoothed"},
      {"optim_args optim_target_modules", "none", "Use --adam_beta1, --adam_epsilon, --weight_decay and --param_groups"},
      {"callbacks eval_metric", "none", "No Python is run: use --optim and --metric_for_best_model"},
      {"early_stop_interval", "none", "Early stopping is missing: use --load_best_model_at_end"},
      {"accelerator_config", "none", "Use --gradient_accumulation_steps and --dataset_shuffle"},
      {"use_mps_device", off_values, "Metal is missing: use --use_cpu"},
      {"push_to_hub_token", "", "Nothing is uploaded: remove it, and do not put a token on a command line"},
      {"cached_val_dataset", "", "Use --cache_dir"},
      {"packing_length", "", "Packing fills samples of --max_length"},
      {"enable_thinking preserve_thinking", "none", "Set it in the chat template, and give that with --template"},
      {"add_non_thinking_prefix disable_ignore_empty_think", off_values, "The text is that of the chat template"},
      {"disable_auto_column_mapping", off_values, "Name the columns with --columns"},
      {"decision_* mrl_dims", "0|0.0|false|none", "Decision and embedding models are missing"},
      {"create_checkpoint_symlink", off_values, "No links are made: tessera inspect DIR finds the newest checkpoint"},
      {"eval_dataset eval_dataset_args eval_generation_config eval_limit eval_use_evalscope extra_eval_args", "false|none", "EvalScope is missing: use --val_dataset"},
      {"device_groups", "none", "Ranks are started by mpirun or srun"},
      {"is_binary_loss_scale", "none", "Use --loss_scale"},
      {"logprobs top_logprobs structured_outputs_regex", "false|none", "tessera generate prints texts alone"},
      {"stop_words", "none", "Stop words are missing: generation ends with the tokens of eos_token_id"},
      {"num_beams", "1", "Beam search is missing: use --temperature, --top_k and --top_p"},
      {"lora_dtype", "none|float32|fp32", "Adapters are fp32"},
      {"safe_serialization", "true|1|yes", "Models are saved as safetensors only"},
      {"use_flash_ckpt", off_values, "Use --async_save true"},
      {"hqq_axis", "", "Models are quantized as bitsandbytes does: use --quant_method bnb"},
      {"vllm_* sglang_* lmdeploy_*", "", "tessera generate samples by itself"},
      {"wandb_* swanlab_*", "", "Every run writes logging.jsonl"},
      {"mlflow_* comet_* use_wandb use_mlflow use_comet", off_values, "Every run writes logging.jsonl, and event files for TensorBoard"},
      {"infer_backend", "pt|transformers|huggingface|hf|auto", "tessera generate samples by itself: leave it out"},
      // Parallelism.
      {"max_unit_size", "", "Embedding and head are one unit each: --mixed_precision bf16 halves what they take, and --reduce_dtype bf16 their gradients", "removed"},
      {"deepspeed_autotp_size", "1", "Use --tensor_parallel_size"},
      {"pipeline_parallel_size expert_parallel_size expert_model_parallel_size", "1",
       "Pipeline and expert parallelism are missing: use --zero_stage 3"},
      {"megatron_lm_config", "", "Megatron-LM is missing: use fsdp_config or deepspeed_config, and --tensor_parallel_size"},
      {"zero_hpz_partition_size", "false|0|1", "A secondary copy of parameters is missing: use --shard_group_size"},
      // Fine-tuning.
      {"tuner_backend", "peft", "LoRA is built in"},
      {"use_dora", off_values, "DoRA is missing"},
      {"target_parameters", "", "LoRA is of modules: name routers and experts with --target_modules"},
      {"freeze_parameters_ratio", "0|0.0", "Use --freeze_parameters with globs: 'layers.0' 'layers.1'"},
      {"freeze_parameters_regex", "", "Use --freeze_parameters with globs"},
      {"trainable_parameters_regex", "", "Use --trainable_parameters with globs"},
      {"adapter_act adapter_length use_swift_lora", "false|none", "Only full training and LoRA are built"},
      {"use_galore", off_values, "GaLore is missing: use --optim adamw_8bit"},
      {"lora_ga_* fourier_* boft_* vera_* galore_* lisa_* llamapro_* adalora_* reft_*", "", "Only full training and LoRA are built"},
      {"sync_ref_model", off_values, "The reference model stays as it is"},
      {"ref_model_mixup_alpha ref_model_sync_steps", "", "The reference model stays as it is"},
      {"ref_adapters ref_adapter_name", "none", "Merge the adapter (tessera convert --merge_lora true), and give it with --ref_model"},
      {"ref_model_type ref_model_revision", "none", "Give a directory with --ref_model"},
      {"ref_model_init_kwargs", "none", "Give a directory with --ref_model"},
      {"reference_free", off_values, "Use --rlhf_type cpo, simpo or orpo, which have no reference"},
      {"disable_dropout", "true|1|yes", "Use --lora_dropout"},
      {"precompute_ref_batch_size", "none", "It is per_device_train_batch_size"},
      {"alpha", "0|0.0", "AlphaPO is missing: use --rlhf_type simpo"},
      // Logging.
      {"log_ranks", "0", "Rank 0 prints for all: use --profile_steps for a trace of each rank"},
      {"profile_memory", off_values, "Use tessera plan for a rank's memory; each step line has the memory in use"},
  };
  // clang-format on
  return options;
}

const UnsupportedOption* find_unsupported(std::string_view name) {
  for (const UnsupportedOption& option : unsupported_options())
    if (is_named(option.names, name)) return &option;
  return nullptr;
}

void check_unsupported(const UnsupportedOption& option, const std::string& name, const std::vector<std::string>& values,
                       const std::string& where) {
  const std::vector<std::string> accepted = split_words(option.accepted, '|');
  for (const std::string& value : values) {
    if (std::find(accepted.begin(), accepted.end(), canonical_spelling(value)) != accepted.end()) continue;
    throw RefusedOption(
        RefusedOption::Group::not_supported, "--" + name + " " + value + ": " + option.state, where,
        option.message + (accepted.empty() ? std::string() : ". Accepted: " + alternatives(option.accepted)));
  }
}

std::string unsupported_command(std::string_view command) {
  for (const char* missing : {"grpo", "ppo", "gkd"})
    if (command == missing)
      return std::string(command) +
             " is not built yet. Use tessera dpo, kto, cpo, simpo, orpo or rm (tessera rlhf --rlhf_type)";
  if (command == "merge_lora" || command == "merge-lora") return "Use tessera convert --merge_lora true";
  if (command == "chat" || command == "inference") return "Use tessera generate --chat";
  if (command == "preprocess") return "Use tessera tokenize";
  if (command == "template") return "template is not built yet. Commands: " + command_names();
  return "";
}

}  // namespace tessera::jobs
