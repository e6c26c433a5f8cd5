// SPDX-License-Identifier: Apache-2.0
// The table of other tools' options that are mapped or have no effect.
#include "jobs/cli/options/other_tools.hpp"

#include <algorithm>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* no_download = "models and data are local paths: nothing is downloaded or uploaded";
constexpr const char* no_workers = "samples are copied from mapped files; there are no worker processes";
constexpr const char* no_vision = "the models are of text only";
constexpr const char* by_batch = "evaluation computes loss and accuracy, batch by batch";
constexpr const char* not_these_devices = "it is for other devices or launchers only";
constexpr const char* self_cognition = "it is for ms-swift's data set swift/self-cognition only";

}  // namespace

const std::vector<OtherToolsOption>& other_tools_options() {
  // One option per line.
  // clang-format off
  static const std::vector<OtherToolsOption> options = {
      // Options that set another one.
      {"torch_dtype", "bfloat16=bf16|bf16=bf16|float16=fp16|fp16=fp16|float32=no|fp32=no|auto", "mixed_precision", "Use --mixed_precision no, bf16 or fp16"},
      {"full_determinism", "true=true|1=true|yes=true|false|0|no", "reproducible", "Use --reproducible true or false"},
      {"ddp_backend", "nccl=nccl|mpi=mpi|gloo|ccl|none", "comm", "Use --comm auto, mpi, node or nccl"},
      {"zero_quantized_gradients", "true=int8|1=int8|yes=int8|false|0|no|none", "reduce_dtype", "Use --reduce_dtype int8"},
      {"zero_quantized_weights", "true=int8|1=int8|yes=int8|false|0|no|none", "gather_dtype", "Use --gather_dtype int8"},
      {"zero_quantized_nontrainable_weights", "true=int8_frozen|1=int8_frozen|yes=int8_frozen|false|0|no|none", "gather_dtype", "Use --gather_dtype int8_frozen"},
      {"no_cuda", "true=true|1=true|yes=true|false|0|no", "use_cpu", "Use --use_cpu"},
      {"activation_checkpointing", "true=true|1=true|yes=true|full=full|selective=selective|false|0|no|none", "gradient_checkpointing", "Use --gradient_checkpointing"},
      {"per_gpu_train_batch_size", "", "per_device_train_batch_size", "Use --per_device_train_batch_size"},
      {"per_gpu_eval_batch_size", "", "per_device_eval_batch_size", "Use --per_device_eval_batch_size"},
      {"train_sampling_strategy", "random=true|sequential=false", "dataset_shuffle", "For group_by_length use --group_by_length true"},
      {"init_weights", "true=true|gaussian=gaussian", "init_lora_weights", "Use --init_lora_weights true or gaussian"},
      // Blocks and files: see Options::assign_block.
      {"fsdp_config lr_scheduler_kwargs", "", "", "a block of keys"},
      // Options without effect.
      {"fsdp_transformer_layer_cls_to_wrap", "", "", "a unit consists of transformer blocks: see --blocks_per_unit"},
      {"fsdp_min_num_params", "0", "", "Use --min_num_params"},
      {"dataloader_in_order dataloader_multiprocessing_context packing_num_proc", "", "", no_workers},
      {"batch_eval_metrics eval_do_concat_batches eval_use_gather_object prediction_loss_only include_for_metrics include_inputs_for_metrics label_names", "", "", by_batch},
      {"include_num_input_tokens_seen include_tokens_per_second", "", "", "tokens, and tokens per second, are always logged"},
      {"jit_mode_eval torch_compile_backend torch_compile_mode torchdynamo experts_impl enable_npu_model_patch", "", "", no_compiler},
      {"ddp_static_graph", "", "", "the graph of a step is planned before the first one"},
      {"debug logging_nan_inf_filter", "", "", "a loss or gradient that is not finite ends the run"},
      {"enable_jit_checkpoint", "", "", "a signal saves a checkpoint: see docs/checkpoints.md"},
      {"fp16_backend half_precision_backend", "auto|cpu_amp|cuda_amp", "", "Use --fp16 or --bf16"},
      {"fp16_opt_level", "", "", "it is for Apex only, which is refused"},
      {"hub_revision push_to_hub_model_id push_to_hub_organization", "", "", no_download},
      {"trackio_bucket_id trackio_space_id trackio_static_space_id project", "", "", "it is for trackio only, which is refused"},
      {"length_column_name", "", "", "it is for group_by_length only, which counts tokens here"},
      {"liger_kernel_config", "", "", "norms, activations and the loss are always fused kernels"},
      {"activation_checkpointing_kwargs", "", "", "blocks are recomputed without PyTorch's checkpoint function"},
      {"mp_parameters ray_scope ray_exp_name tpu_num_cores tpu_metrics_debug _n_gpu", "", "", not_these_devices},
      {"past_index", "", "", "the models have no memory of earlier samples"},
      {"use_legacy_prediction_loop restore_callback_states_from_checkpoint use_cache ds3_gather_for_generation", "", "", "it is of Python's training loop"},
      {"log_level_replica", "", "", "rank 0 prints for all"},
      {"flash_attention flash_attn use_flash_attn flash_attn_* xformers_attention sdp_attention eager_attention attn_implementation", "", "", "attention is always tiled (flash attention)"},
      {"attn_impl", "auto|flash|flash_attn|flash_attention_2|flash_attention_3|sdpa|eager", "", "attention is always tiled (flash attention)"},
      {"stream", "true|1|yes|false|0|no|none", "", "the answer to one prompt is always printed as it is generated"},
      {"fsdp_version", "1|2", "", "Use 1 or 2: the names of both are known"},
      {"overwrite_cache dataset_prepared_path", "", "", "tokenized text is cached by its contents (--cache_dir)"},
      {"preprocessing_num_workers preprocessing_batch_size dataset_processes", "", "", "text is tokenized in parallel by all ranks"},
      {"plot_loss", "", "", "report.html in the run's directory draws the curves"},
      {"include_effective_tokens_per_second", "", "", "tokens, and tokens per second, are always logged"},
      {"pad_to_sequence_len eval_sample_packing eval_packing sample_packing_group_size sample_packing_bin_size", "", "", "padding has no loss, and evaluation packs as training does"},
      {"ignore_pad_token_for_loss", "true|1|yes", "", "Padding never has loss"},
      {"eval_on_each_dataset", "", "", "every file of --val_dataset is evaluated by itself, too"},
      {"lora_fan_in_fan_out", "", "", "which way a weight is stored is known of each model"},
      {"liger_* enable_liger_kernel use_liger lora_mlp_kernel lora_qkv_kernel lora_o_kernel cut_cross_entropy", "", "", "norms, activations and the loss are always fused kernels"},
      {"upcast_layernorm upcast_lmhead_output", "", "", "norms and losses are always computed in fp32"},
      {"tokenizer_type is_llama_derived_model is_mistral_derived_model is_qwen_derived_model is_falcon_derived_model", "", "", "the family is that of config.json, the tokenizer that of tokenizer.json"},
      {"use_fast_tokenizer tokenizer_use_fast", "true|1|yes|none", "", "The tokenizer is that of tokenizer.json"},
      {"low_cpu_mem_usage lora_on_cpu dataset_keep_in_memory print_param_status", "", "", "each rank reads its own shard of the weights"},
      {"image_max_pixels image_min_pixels video_max_pixels video_min_pixels video_fps video_maxlen media_dir crop_to_patches freeze_vision_tower freeze_multi_modal_projector train_mm_proj_only", "", "", no_vision},
      {"model_type", "", "", "the family is that of config.json"},
      {"use_hf use_hf_hub hub_model_id hub_private_repo hub_strategy hub_always_push download_mode local_repo_path check_model", "", "", no_download},
      {"push_to_hub", "false|0|no", "", "Nothing is uploaded: upload the directory afterwards"},
      {"trust_remote_code", "", "", "no code of the model directory is run"},
      {"device_map max_memory", "", "", "each rank uses one device (--backend) and a share of the model (--zero_stage)"},
      {"local_rank log_on_each_node", "", "", "ranks are numbered by the launcher, and rank 0 prints"},
      {"dataset_num_proc", "", "", "text is tokenized in parallel by all ranks"},
      {"load_from_cache_file lazy_tokenize", "", "", "tokenized text is always cached (--cache_dir)"},
      {"dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor", "", "", no_workers},
      {"shuffle_buffer_size", "", "", "all samples are shuffled, not a buffer of them"},
      {"remove_unused_columns", "", "", "only the known columns of a row are read"},
      {"model_name model_author", "", "", self_cognition},
      {"freeze_llm freeze_vit freeze_aligner vit_gradient_checkpointing vit_lr aligner_lr max_pixels norm_bbox", "", "", no_vision},
      {"gradient_checkpointing_kwargs", "", "", "blocks are recomputed without PyTorch's checkpoint function"},
      {"ddp_find_unused_parameters ddp_broadcast_buffers", "", "", "which parameters are used is known before the first step"},
      {"ddp_bucket_cap_mb", "", "", by_units},
      {"average_tokens_across_devices", "", "", "the loss is always the mean over all tokens of the global batch"},
      {"use_liger_kernel use_logits_to_keep", "", "", "norms, activations and the loss are always fused kernels, and logits are made in chunks"},
      {"torch_compile", "", "", "kernels are compiled ahead of time"},
      {"tf32", "", "", "fp32 is computed in fp32; see --mixed_precision"},
      {"disable_tqdm", "true=lines|1=lines|yes=lines|false|0|no", "progress", "Use --progress lines or none"},
      {"do_train do_eval", "true|1|yes", "", "Use tessera train or tessera eval"},
      {"overwrite_output_dir", "", "", "every run writes to a directory of its own; see --add_version"},
      {"save_safetensors", "true|1|yes", "", "Models are saved as safetensors only"},
      {"eval_accumulation_steps torch_empty_cache_steps skip_memory_metrics", "", "", "memory is planned before the first step"},
      {"template_backend", "jinja|swift", "", "The model's own chat template (Jinja) is used"},
      {"save_on_each_node ignore_args_error use_ray", "false|0|no", "", "It is not needed"},
  };
  // clang-format on
  return options;
}

bool is_named(std::string_view names, std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const std::string& known : split_words(names, ' '))
    if (known == wanted || (known.ends_with('*') && wanted.starts_with(known.substr(0, known.size() - 1)))) return true;
  return false;
}

const OtherToolsOption* find_other_tools(std::string_view name) {
  for (const OtherToolsOption& option : other_tools_options())
    if (is_named(option.names, name)) return &option;
  return nullptr;
}

OtherToolsRequest request_of(const OtherToolsOption& option, const std::string& value) {
  const std::vector<std::string> accepted = split_words(option.values, '|');
  if (accepted.empty()) return {true, option.target[0] == '\0' ? "" : value};
  const std::string word = canonical_spelling(value);
  for (const std::string& entry : accepted) {
    const std::size_t equals = entry.find('=');
    if (entry.substr(0, equals) == word) return {true, equals == entry.npos ? "" : entry.substr(equals + 1)};
  }
  return {};
}

}  // namespace tessera::jobs
