// SPDX-License-Identifier: Apache-2.0
// The table of keys of accelerate's configuration files, and what each one sets.
#include "jobs/cli/options/config_files.hpp"
#include "jobs/cli/options/other_tools.hpp"

namespace tessera::jobs {

namespace {

// One key per line.
// clang-format off

constexpr const char* by_launcher = "set by the launcher (mpirun, srun)";
constexpr const char* for_tpus = "for TPUs only, which are refused";
constexpr const char* for_sagemaker = "for SageMaker only, which is refused";
constexpr const char* no_megatron = "Megatron-LM is missing: use fsdp_config or deepspeed_config, and --tensor_parallel_size";
constexpr const char* own_shard = "each rank reads its own shard of the weights, and nothing else";

constexpr ExternalKeySpec accelerate_rows[] = {
    // Top level.
    {"accelerate", "fsdp_config", KeyAction::block, "fsdp_config"},
    {"accelerate", "deepspeed_config", KeyAction::block, "deepspeed_config"},
    {"accelerate", "parallelism_config", KeyAction::custom, "parallelism_config"},
    {"accelerate", "megatron_lm_config", KeyAction::switched, "", "", no_megatron},
    {"accelerate", "fp8_config", KeyAction::switched, "", "", "FP8 is missing: use mixed_precision bf16"},
    {"accelerate", "distributed_type", KeyAction::custom, "distributed_type"},
    {"accelerate", "num_processes", KeyAction::custom, "num_processes"},
    {"accelerate", "compute_environment", KeyAction::only, "the launcher is mpirun or srun", "local_machine|0", "SageMaker is missing: start ranks with mpirun or srun"},
    {"accelerate", "enable_cpu_affinity", KeyAction::harmless, "ranks keep the cores that the launcher binds them to"},
    {"accelerate", "gpu_ids", KeyAction::harmless, "each rank takes the GPU of its local rank: choose GPUs with CUDA_VISIBLE_DEVICES"},
    {"accelerate", "machine_rank main_process_ip main_process_port num_machines rdzv_backend same_network", KeyAction::harmless, by_launcher},
    {"accelerate", "mpirun_config", KeyAction::harmless, by_launcher},
    {"accelerate", "num_cpu_threads_per_process", KeyAction::set, "threads"},
    {"accelerate", "debug", KeyAction::harmless, "shapes of collectives are checked when the run is planned"},
    {"accelerate", "main_training_function", KeyAction::harmless, "no Python is run"},
    {"accelerate", "profile", KeyAction::harmless, for_sagemaker},
    {"accelerate", "dynamo_config dynamo_backend ipex_config", KeyAction::harmless, no_compiler},
    {"accelerate", "downcast_bf16", KeyAction::harmless, for_tpus},
    {"accelerate", "tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_vm tpu_env command_file commands", KeyAction::harmless, for_tpus},
    {"accelerate", "ec2_instance_type iam_role_name image_uri region base_job_name pytorch_version transformers_version py_version sagemaker_inputs_file sagemaker_metrics_file additional_args", KeyAction::harmless, for_sagemaker},
    // fsdp_config: the names of accelerate; Hugging Face's TrainingArguments leave out "fsdp_".
    {"fsdp_config", "fsdp_version", KeyAction::only, "the names of FSDP1 and FSDP2 are both known", "1|2", "Use 1 or 2"},
    {"fsdp_config", "fsdp_sharding_strategy", KeyAction::custom, "fsdp_sharding_strategy"},
    {"fsdp_config", "fsdp_reshard_after_forward", KeyAction::custom, "fsdp_reshard"},
    {"fsdp_config", "fsdp_auto_wrap_policy", KeyAction::set, "wrap_policy"},
    {"fsdp_config", "fsdp_min_num_params", KeyAction::if_enabled, "min_num_params"},
    {"fsdp_config", "fsdp_transformer_layer_cls_to_wrap", KeyAction::harmless, "a unit consists of transformer blocks: see blocks_per_unit"},
    {"fsdp_config", "fsdp_backward_prefetch fsdp_backward_prefetch_policy", KeyAction::set, "backward_prefetch"},
    {"fsdp_config", "fsdp_forward_prefetch", KeyAction::set, "forward_prefetch"},
    {"fsdp_config", "fsdp_limit_all_gathers", KeyAction::harmless, "gathers in flight are limited by forward_prefetch and backward_prefetch"},
    {"fsdp_config", "fsdp_offload_params fsdp_cpu_offload", KeyAction::if_enabled, "offload_params"},
    {"fsdp_config", "fsdp_state_dict_type", KeyAction::only, "models are saved unsharded, checkpoints sharded", "full_state_dict|sharded_state_dict|local_state_dict|1|2|3", "Use FULL_STATE_DICT or SHARDED_STATE_DICT"},
    {"fsdp_config", "fsdp_cpu_ram_efficient_loading", KeyAction::harmless, own_shard},
    {"fsdp_config", "fsdp_sync_module_states", KeyAction::harmless, "every rank computes the same initial values"},
    {"fsdp_config", "fsdp_use_orig_params", KeyAction::harmless, "parameters keep their names and shapes"},
    {"fsdp_config", "fsdp_activation_checkpointing", KeyAction::set, "gradient_checkpointing"},
    {"fsdp_config", "fsdp_activation_checkpointing_offload fsdp_activation_cpu_offload", KeyAction::if_enabled, "offload_activations"},
    {"fsdp_config", "fsdp_ignored_modules", KeyAction::only, "no module is left out", "none", "Use --unit_strategy 'GLOB=NO_SHARD'"},
    {"fsdp_config", "fsdp_xla fsdp_xla_fsdp_v2", KeyAction::only, "for TPUs only", "false|0|no", "TPUs are missing"},
    {"fsdp_config", "fsdp_xla_fsdp_settings fsdp_xla_fsdp_grad_ckpt", KeyAction::harmless, for_tpus},
    // deepspeed_config: DeepSpeed through accelerate.
    {"deepspeed_config", "deepspeed_config_file", KeyAction::custom, "deepspeed_file"},
    {"deepspeed_config", "zero_stage", KeyAction::set, "zero_stage"},
    {"deepspeed_config", "gradient_accumulation_steps", KeyAction::set, "gradient_accumulation_steps"},
    {"deepspeed_config", "gradient_clipping", KeyAction::set, "max_grad_norm"},
    {"deepspeed_config", "offload_optimizer_device", KeyAction::if_enabled, "offload_optimizer"},
    {"deepspeed_config", "offload_param_device", KeyAction::if_enabled, "offload_params"},
    {"deepspeed_config", "offload_optimizer_nvme_path offload_param_nvme_path", KeyAction::if_enabled, "nvme_path"},
    {"deepspeed_config", "zero3_init_flag", KeyAction::harmless, own_shard},
    {"deepspeed_config", "zero3_save_16bit_model", KeyAction::custom, "save_16bit"},
    {"deepspeed_config", "deepspeed_moe_layer_cls_names", KeyAction::harmless, "experts are units of their own: see expert_units"},
    {"deepspeed_config", "deepspeed_multinode_launcher deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter", KeyAction::harmless, by_launcher},
    // parallelism_config: the sizes of the mesh. dp_* are read by ConfigFileReader::parallelism_config.
    {"parallelism_config", "parallelism_config_tp_size", KeyAction::set, "tensor_parallel_size"},
    {"parallelism_config", "parallelism_config_cp_size parallelism_config_sp_size", KeyAction::set, "context_parallel_size"},
    {"parallelism_config", "parallelism_config_cp_backend parallelism_config_cp_comm_strategy", KeyAction::harmless, "how ranks that share rows attend: see context_parallel_kind"},
    {"parallelism_config", "parallelism_config_sp_backend parallelism_config_sp_seq_length parallelism_config_sp_seq_length_is_variable parallelism_config_sp_attn_implementation", KeyAction::harmless, "how ranks that share rows attend: see context_parallel_kind"},
    // lr_scheduler_kwargs: of Hugging Face's TrainingArguments.
    {"lr_scheduler_kwargs", "min_lr", KeyAction::set, "min_lr"},
    {"lr_scheduler_kwargs", "min_lr_rate min_lr_ratio", KeyAction::set, "min_lr_rate"},
    {"lr_scheduler_kwargs", "num_decay_steps", KeyAction::set, "lr_decay_steps"},
    {"lr_scheduler_kwargs", "num_warmup_steps", KeyAction::set, "warmup_steps"},
    {"lr_scheduler_kwargs", "num_cycles", KeyAction::only, "half a cosine", "0.5", "Restarts are missing: use 0.5"},
    {"lr_scheduler_kwargs", "warmup_type decay_type", KeyAction::only, "warm-up and decay are linear", "linear", "Use linear"},
};

// clang-format on

}  // namespace

std::span<const ExternalKeySpec> accelerate_key_table() { return accelerate_rows; }

}  // namespace tessera::jobs
