// The table of keys of accelerate and DeepSpeed configuration files, and what each one sets.
#include "jobs/cli/options/config_files.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* by_launcher = "set by the launcher (mpirun, srun)";
constexpr const char* unneeded = "not needed";
constexpr const char* always_on = "always on";
constexpr const char* saved_fp32 = "the model is saved in fp32";
constexpr const char* halved = "the loss scale is halved at every overflow";

constexpr ExternalKeySpec external_key_rows[] = {
    // accelerate, top level
    {"accelerate", "fsdp_config", KeyAction::block, "fsdp_config"},
    {"accelerate", "deepspeed_config", KeyAction::block, "deepspeed_config"},
    {"accelerate", "megatron_lm_config", KeyAction::if_enabled, "megatron_lm_config"},
    {"accelerate", "distributed_type", KeyAction::custom, "distributed_type"},
    {"accelerate",
     "compute_environment enable_cpu_affinity gpu_ids machine_rank main_process_ip main_process_port num_machines "
     "num_processes mpirun_config rdzv_backend same_network",
     KeyAction::ignored, by_launcher},
    {"accelerate", "debug dynamo_config ipex_config main_training_function", KeyAction::ignored, unneeded},
    {"accelerate", "downcast_bf16 tpu_env tpu_use_cluster tpu_use_sudo", KeyAction::ignored, "for TPUs only"},
    // accelerate, fsdp_config
    {"fsdp_config", "fsdp_version", KeyAction::ignored, "the names of FSDP1 and FSDP2 are both accepted"},
    {"fsdp_config", "fsdp_sharding_strategy", KeyAction::custom, "fsdp_sharding_strategy"},
    {"fsdp_config", "fsdp_reshard_after_forward", KeyAction::custom, "fsdp_reshard"},
    {"fsdp_config", "fsdp_auto_wrap_policy", KeyAction::set, "wrap_policy"},
    {"fsdp_config", "fsdp_min_num_params", KeyAction::if_enabled, "min_num_params"},
    {"fsdp_config", "fsdp_transformer_layer_cls_to_wrap", KeyAction::ignored, "a unit consists of transformer blocks"},
    {"fsdp_config", "fsdp_backward_prefetch", KeyAction::set, "backward_prefetch"},
    {"fsdp_config", "fsdp_backward_prefetch_policy", KeyAction::set, "backward_prefetch"},
    {"fsdp_config", "fsdp_forward_prefetch", KeyAction::set, "forward_prefetch"},
    {"fsdp_config", "fsdp_offload_params", KeyAction::if_enabled, "offload_params"},
    {"fsdp_config", "fsdp_state_dict_type", KeyAction::ignored, "models are saved unsharded, checkpoints sharded"},
    {"fsdp_config", "fsdp_cpu_ram_efficient_loading fsdp_use_orig_params", KeyAction::ignored, always_on},
    {"fsdp_config", "fsdp_activation_checkpointing", KeyAction::set, "gradient_checkpointing"},
    {"fsdp_config", "fsdp_sync_module_states", KeyAction::ignored, "every rank initializes the same parameters"},
    // accelerate, deepspeed_config
    {"deepspeed_config", "deepspeed_config_file", KeyAction::custom, "deepspeed_file"},
    {"deepspeed_config", "zero_stage", KeyAction::set, "zero_stage"},
    {"deepspeed_config", "gradient_accumulation_steps", KeyAction::set, "gradient_accumulation_steps"},
    {"deepspeed_config", "gradient_clipping", KeyAction::set, "max_grad_norm"},
    {"deepspeed_config", "offload_optimizer_device", KeyAction::if_enabled, "offload_optimizer"},
    {"deepspeed_config", "offload_param_device", KeyAction::if_enabled, "offload_params"},
    {"deepspeed_config", "zero3_init_flag", KeyAction::ignored, always_on},
    {"deepspeed_config", "zero3_save_16bit_model", KeyAction::ignored, saved_fp32},
    {"deepspeed_config", "deepspeed_multinode_launcher deepspeed_hostfile", KeyAction::ignored, by_launcher},
    // DeepSpeed, top level
    {"deepspeed", "train_batch_size", KeyAction::set, "global_batch_size"},
    {"deepspeed", "train_micro_batch_size_per_gpu", KeyAction::set, "per_device_train_batch_size"},
    {"deepspeed", "gradient_accumulation_steps", KeyAction::set, "gradient_accumulation_steps"},
    {"deepspeed", "gradient_clipping", KeyAction::set, "max_grad_norm"},
    {"deepspeed", "steps_per_print", KeyAction::custom, "steps_per_print"},
    {"deepspeed", "zero_optimization", KeyAction::block, "zero_optimization"},
    {"deepspeed", "optimizer", KeyAction::block, "optimizer"},
    {"deepspeed", "scheduler", KeyAction::block, "scheduler"},
    {"deepspeed", "bf16", KeyAction::block, "bf16"},
    {"deepspeed", "fp16", KeyAction::block, "fp16"},
    {"deepspeed", "activation_checkpointing", KeyAction::ignored, "see gradient_checkpointing"},
    {"deepspeed", "wall_clock_breakdown comms_logger", KeyAction::ignored, "see profile_steps"},
    {"deepspeed", "flops_profiler", KeyAction::ignored, "see plan"},
    {"deepspeed", "prescale_gradients gradient_predivide_factor", KeyAction::ignored,
     "the loss is the mean over the tokens of the global batch"},
    {"deepspeed", "communication_data_type", KeyAction::custom, "communication_data_type"},
    {"deepspeed", "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer dump_state", KeyAction::ignored, unneeded},
    {"deepspeed", "tensorboard wandb csv_monitor", KeyAction::ignored, "see logging.jsonl"},
    {"deepspeed", "aio", KeyAction::ignored, "for offload to disk only"},
    // DeepSpeed, zero_optimization
    {"zero_optimization", "stage", KeyAction::set, "zero_stage"},
    {"zero_optimization",
     "reduce_bucket_size allgather_bucket_size round_robin_gradients sub_group_size stage3_param_persistence_threshold",
     KeyAction::ignored, "communication is by unit (a transformer block)"},
    {"zero_optimization", "allgather_partitions reduce_scatter overlap_comm contiguous_gradients", KeyAction::ignored,
     always_on},
    {"zero_optimization", "stage3_prefetch_bucket_size stage3_max_live_parameters stage3_max_reuse_distance",
     KeyAction::ignored, "see forward_prefetch and backward_prefetch"},
    {"zero_optimization", "stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save",
     KeyAction::ignored, saved_fp32},
    {"zero_optimization", "ignore_unused_parameters", KeyAction::ignored, "every parameter is used"},
    {"zero_optimization", "elastic_checkpoint", KeyAction::ignored, "any number of ranks can load a checkpoint"},
    {"zero_optimization", "mics_hierarchical_params_gather", KeyAction::ignored, "chosen by the transport"},
    {"zero_optimization", "mics_shard_size", KeyAction::custom, "mics_shard_size"},
    {"zero_optimization", "zero_hpz_partition_size", KeyAction::if_enabled, "zero_hpz_partition_size"},
    {"zero_optimization", "zero_quantized_weights", KeyAction::if_enabled, "zero_quantized_weights"},
    {"zero_optimization", "zero_quantized_gradients", KeyAction::if_enabled, "zero_quantized_gradients"},
    {"zero_optimization", "offload_optimizer", KeyAction::custom, "offload_optimizer"},
    {"zero_optimization", "offload_param", KeyAction::custom, "offload_params"},
    {"zero_optimization", "cpu_offload", KeyAction::if_enabled, "offload_optimizer"},
    // DeepSpeed, the rest
    {"bf16", "enabled", KeyAction::if_enabled, "bf16"},
    {"bf16", "auto_cast", KeyAction::ignored, "the input is token ids, which are not cast"},
    {"fp16", "enabled", KeyAction::if_enabled, "fp16"},
    {"fp16", "auto_cast", KeyAction::ignored, "the input is token ids, which are not cast"},
    {"fp16", "loss_scale", KeyAction::custom, "fixed_loss_scale"},
    {"fp16", "initial_scale_power", KeyAction::set, "initial_scale_power"},
    {"fp16", "loss_scale_window", KeyAction::set, "loss_scale_window"},
    {"fp16", "hysteresis consecutive_hysteresis", KeyAction::ignored, halved},
    {"fp16", "min_loss_scale", KeyAction::set, "min_loss_scale"},
    {"optimizer", "type", KeyAction::custom, "optimizer_type"},
    {"optimizer", "params", KeyAction::block, "optimizer.params"},
    {"optimizer.params", "lr", KeyAction::set, "learning_rate"},
    {"optimizer.params", "betas", KeyAction::custom, "betas"},
    {"optimizer.params", "eps", KeyAction::set, "adam_epsilon"},
    {"optimizer.params", "weight_decay", KeyAction::set, "weight_decay"},
    {"optimizer.params", "momentum", KeyAction::set, "momentum"},
    {"optimizer.params", "nesterov", KeyAction::set, "nesterov"},
    {"optimizer.params", "torch_adam", KeyAction::ignored, unneeded},
    {"optimizer.params", "adam_w_mode", KeyAction::ignored, "weight decay is decoupled (AdamW)"},
    {"scheduler", "type", KeyAction::custom, "scheduler_type"},
    {"scheduler", "params", KeyAction::block, "scheduler.params"},
    {"scheduler.params", "warmup_min_lr", KeyAction::custom, "warmup_min_lr"},
    {"scheduler.params", "warmup_max_lr", KeyAction::set, "learning_rate"},
    {"scheduler.params", "warmup_num_steps", KeyAction::set, "warmup_steps"},
    {"scheduler.params", "warmup_type", KeyAction::ignored, "the warm-up is linear"},
    {"scheduler.params", "total_num_steps", KeyAction::set, "max_steps"},
};

}  // namespace

std::span<const ExternalKeySpec> external_key_table() { return external_key_rows; }

}  // namespace tessera::jobs
