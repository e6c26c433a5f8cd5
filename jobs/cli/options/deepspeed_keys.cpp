// SPDX-License-Identifier: Apache-2.0
// The table of keys of DeepSpeed's configuration files, and what each one sets.
#include "jobs/cli/options/config_files.hpp"
#include "jobs/cli/options/other_tools.hpp"

namespace tessera::jobs {

namespace {

// One key per line.
// clang-format off

constexpr const char* prints_only = "it only prints";
constexpr const char* any_ranks = "any number of ranks can load a checkpoint";
constexpr const char* for_offload = "buffers are pinned, and as many as the plan says";
constexpr const char* for_disk = "the schedule reads ahead and writes behind, with two staging slots";
constexpr const char* false_values = "false|0|no|none";
constexpr const char* true_values = "true|1|yes";
constexpr const char* no_offload = "Shard over more ranks: use --zero_stage 3";
constexpr const char* no_quantized_training = "Quantized training is missing: use bf16, or --optim adamw_8bit";
constexpr const char* no_one_cycle = "LRRangeTest and OneCycle are missing: use --lr_scheduler_type";
constexpr const char* no_muon = "Lamb, Lion and Muon are missing: use AdamW or SGD";
constexpr const char* own_checkpoints = "Checkpoints have a format of their own: use --async_save true to write them during the next steps";
constexpr const char* see_plan = "Use tessera plan, which prints FLOPs, memory and the largest micro-batch that fits";
constexpr const char* trace_instead = "Use --profile_steps A:B, which writes a trace of computation and communication";

constexpr ExternalKeySpec deepspeed_rows[] = {
    // Top level: batch, optimizer, precision.
    {"deepspeed", "train_batch_size", KeyAction::set, "global_batch_size"},
    {"deepspeed", "train_micro_batch_size_per_gpu", KeyAction::set, "per_device_train_batch_size"},
    {"deepspeed", "gradient_accumulation_steps", KeyAction::set, "gradient_accumulation_steps"},
    {"deepspeed", "managed_gradient_accumulation", KeyAction::only, "a step is always one of the optimizer", true_values, "Use gradient_accumulation_steps"},
    {"deepspeed", "gradient_clipping", KeyAction::set, "max_grad_norm"},
    {"deepspeed", "steps_per_print", KeyAction::harmless, "it is of DeepSpeed's own lines: logging_steps decides how often a step is printed"},
    {"deepspeed", "zero_optimization", KeyAction::custom, "zero_optimization"},
    {"deepspeed", "optimizer", KeyAction::block, "optimizer"},
    {"deepspeed", "scheduler", KeyAction::custom, "scheduler"},
    {"deepspeed", "bf16 bfloat16", KeyAction::custom, "bf16"},
    {"deepspeed", "fp16", KeyAction::custom, "fp16"},
    {"deepspeed", "torch_autocast", KeyAction::switched, by_enabled, "", "Use bf16 or fp16, which also compute in 16 bits from fp32 master weights"},
    {"deepspeed", "amp", KeyAction::switched, by_enabled, "", "Use bf16 or fp16"},
    {"deepspeed", "data_types", KeyAction::block, "data_types"},
    {"deepspeed", "communication_data_type", KeyAction::custom, "communication_data_type"},
    {"deepspeed", "seq_parallel_communication_data_type", KeyAction::harmless, "for sequence parallelism only, which is refused"},
    {"deepspeed", "prescale_gradients gradient_predivide_factor", KeyAction::harmless, "gradients are summed in fp32 and divided once, by the tokens of the global batch"},
    {"deepspeed", "gradient_allreduce_op", KeyAction::only, "gradients are means over the tokens of the global batch", "mean", "Multiply the learning rate"},
    {"deepspeed", "sparse_gradients", KeyAction::harmless, "gradients of embeddings are dense, with the same values"},
    {"deepspeed", "disable_allgather", KeyAction::harmless, by_units},
    {"deepspeed", "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer", KeyAction::harmless, "every optimizer runs with every strategy"},
    {"deepspeed", "disable_python_gc", KeyAction::harmless, "there is no Python"},
    {"deepspeed", "dataloader_drop_last", KeyAction::set, "dataloader_drop_last"},
    {"deepspeed", "vocabulary_size", KeyAction::harmless, "the vocabulary is that of config.json"},
    {"deepspeed", "use_data_before_expert_parallelism", KeyAction::harmless, "for expert parallelism only, which is refused"},
    // Top level: what is logged and measured.
    {"deepspeed", "wall_clock_breakdown memory_breakdown dump_state timers", KeyAction::harmless, prints_only},
    {"deepspeed", "flops_profiler", KeyAction::switched, by_enabled, "", see_plan},
    {"deepspeed", "comms_logger", KeyAction::switched, by_enabled, "", trace_instead},
    {"deepspeed", "tensorboard wandb comet csv_monitor", KeyAction::custom, "monitor"},
    {"deepspeed", "autotuning", KeyAction::switched, by_enabled, "", see_plan},
    // Top level: what is missing, and what older versions had.
    {"deepspeed", "activation_checkpointing", KeyAction::block, "activation_checkpointing"},
    {"deepspeed", "aio", KeyAction::harmless, "scratch files have blocks of 1 MiB and eight threads"},
    {"deepspeed", "tensor_parallel", KeyAction::block, "tensor_parallel"},
    {"deepspeed", "expert_parallel", KeyAction::switched, by_enabled, "", "Expert parallelism is missing: use --zero_stage 3, which shards experts too"},
    {"deepspeed", "hybrid_engine", KeyAction::switched, by_enabled, "", "Training with generation is missing: use tessera generate"},
    {"deepspeed", "pipeline", KeyAction::block, "pipeline"},
    {"deepspeed", "compile", KeyAction::block, "compile"},
    {"deepspeed", "checkpoint", KeyAction::block, "checkpoint"},
    {"deepspeed", "datastates_ckpt", KeyAction::switched, "", "", own_checkpoints},
    {"deepspeed", "nebula", KeyAction::switched, by_enabled, "", own_checkpoints},
    {"deepspeed", "data_efficiency curriculum_learning", KeyAction::switched, by_enabled, "", "Curricula and token dropping are missing: order the rows of the data, and use --dataset_shuffle false"},
    {"deepspeed", "progressive_layer_drop", KeyAction::switched, by_enabled, "", "All layers are trained: use --freeze_parameters to leave some out"},
    {"deepspeed", "weight_quantization", KeyAction::switched, "", "", no_quantized_training},
    {"deepspeed", "quantize_training eigenvalue compression_training", KeyAction::switched, by_enabled, "", no_quantized_training},
    {"deepspeed", "sparse_attention", KeyAction::switched, "", "", "Attention covers the whole sample: use --max_length to shorten samples"},
    {"deepspeed", "elasticity", KeyAction::switched, by_enabled, "", "A run resumes on any number of ranks: use --resume_from_checkpoint auto"},
    {"deepspeed", "graph_harvesting", KeyAction::harmless, "the schedule of a step is computed before the first one"},
    // zero_optimization
    {"zero_optimization", "stage", KeyAction::set, "zero_stage"},
    {"zero_optimization", "reduce_bucket_size allgather_bucket_size use_multi_rank_bucket_allreduce round_robin_gradients legacy_stage1", KeyAction::harmless, by_units},
    {"zero_optimization", "stage3_param_persistence_threshold param_persistence_threshold stage3_model_persistence_threshold model_persistence_threshold stage3_module_granularity_threshold module_granularity_threshold", KeyAction::harmless, by_units},
    {"zero_optimization", "stage3_use_all_reduce_for_fetch_params use_all_reduce_for_fetch_params stage3_allgather_sequential allgather_sequential", KeyAction::harmless, by_units},
    {"zero_optimization", "sub_group_size parameter_alignment memory_efficient_linear override_module_apply", KeyAction::harmless, "buffers are planned before the first step"},
    {"zero_optimization", "allgather_partitions reduce_scatter overlap_comm contiguous_gradients", KeyAction::harmless, "always on"},
    {"zero_optimization", "stage3_prefetch_bucket_size prefetch_bucket_size stage3_max_live_parameters max_live_parameters stage3_max_reuse_distance max_reuse_distance", KeyAction::harmless, "see forward_prefetch and backward_prefetch"},
    {"zero_optimization", "stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save", KeyAction::custom, "save_16bit"},
    {"zero_optimization", "compute_grad_norm", KeyAction::harmless, "the norm is always computed, with the loss"},
    {"zero_optimization", "ignore_unused_parameters", KeyAction::harmless, "every parameter is used"},
    {"zero_optimization", "load_from_fp32_weights", KeyAction::only, "checkpoints have fp32 master weights", true_values, "Checkpoints have fp32 master weights: use true"},
    {"zero_optimization", "elastic_checkpoint pipeline_loading_checkpoint", KeyAction::harmless, any_ranks},
    {"zero_optimization", "log_trace_cache_warnings enable_sanity_checks", KeyAction::harmless, "schedules are verified before the first step"},
    {"zero_optimization", "leaf_module", KeyAction::harmless, by_units},
    {"zero_optimization", "save_muon_momentum_buffer_in_memory", KeyAction::harmless, "for Muon only, which is refused"},
    {"zero_optimization", "mics_hierarchical_params_gather", KeyAction::harmless, "chosen by the transport"},
    {"zero_optimization", "mics_shard_size", KeyAction::custom, "mics_shard_size"},
    {"zero_optimization", "zero_hpz_partition_size", KeyAction::if_enabled, "zero_hpz_partition_size"},
    {"zero_optimization", "zero_quantized_weights", KeyAction::custom, "zero_quantized_weights"},
    {"zero_optimization", "zero_quantized_nontrainable_weights", KeyAction::custom, "zero_quantized_nontrainable_weights"},
    {"zero_optimization", "zero_quantized_gradients", KeyAction::custom, "zero_quantized_gradients"},
    {"zero_optimization", "zeropp_loco_param", KeyAction::switched, "", "", "LoCo is missing: zero_quantized_gradients has error feedback of its own"},
    {"zero_optimization", "offload_optimizer", KeyAction::block, "offload_optimizer"},
    {"zero_optimization", "offload_param", KeyAction::block, "offload_param"},
    {"zero_optimization", "cpu_offload", KeyAction::if_enabled, "offload_optimizer"},
    {"zero_optimization", "cpu_offload_param cpu_offload_params", KeyAction::if_enabled, "offload_params"},
    {"zero_optimization", "cpu_offload_use_pin_memory", KeyAction::harmless, for_offload},
    {"zero_optimization", "zenflow", KeyAction::switched, "", "", no_offload},
    {"offload_optimizer", "device", KeyAction::if_enabled, "offload_optimizer"},
    {"offload_optimizer", "buffer_count pin_memory fast_init super_offload cpuadam_cores_perc", KeyAction::harmless, for_offload},
    {"offload_optimizer", "nvme_path", KeyAction::if_enabled, "nvme_path"},
    {"offload_optimizer", "pipeline pipeline_read pipeline_write", KeyAction::harmless, for_disk},
    {"offload_optimizer", "ratio", KeyAction::only, "the optimizer is offloaded as a whole", "1|1.0", "Drop it"},
    {"offload_param", "device", KeyAction::if_enabled, "offload_params"},
    {"offload_param", "buffer_count buffer_size pin_memory", KeyAction::harmless, for_offload},
    {"offload_param", "nvme_path", KeyAction::if_enabled, "nvme_path"},
    {"offload_param", "max_in_cpu", KeyAction::harmless, for_disk},
    // Precision.
    {"bf16", "enabled", KeyAction::if_enabled, "bf16"},
    {"bf16", "auto_cast", KeyAction::harmless, "the input is token ids, which are not cast"},
    {"bf16", "immediate_grad_update", KeyAction::harmless, "gradients are accumulated in fp32 as soon as they are reduced"},
    {"bf16", "check_grad_overflow", KeyAction::harmless, "a gradient that is not finite ends the run before its update (exit 5)"},
    {"bf16", "bf16_master_weights_and_grads", KeyAction::only, "master weights and gradients are fp32", false_values, "Master weights and gradients are fp32: shard them with --zero_stage 3"},
    {"bf16", "bf16_optimizer_states", KeyAction::only, "optimizer states are fp32", false_values, "Use --optim adamw_8bit for smaller states"},
    {"fp16", "enabled", KeyAction::if_enabled, "fp16"},
    {"fp16", "auto_cast", KeyAction::harmless, "the input is token ids, which are not cast"},
    {"fp16", "loss_scale", KeyAction::custom, "fixed_loss_scale"},
    {"fp16", "initial_scale_power", KeyAction::set, "initial_scale_power"},
    {"fp16", "loss_scale_window", KeyAction::set, "loss_scale_window"},
    {"fp16", "hysteresis", KeyAction::set, "hysteresis"},
    {"fp16", "consecutive_hysteresis", KeyAction::set, "consecutive_hysteresis"},
    {"fp16", "min_loss_scale", KeyAction::set, "min_loss_scale"},
    {"fp16", "fp16_master_weights_and_grads", KeyAction::only, "master weights and gradients are fp32", false_values, "Master weights and gradients are fp32: shard them with --zero_stage 3"},
    {"data_types", "grad_accum_dtype", KeyAction::only, "gradients are accumulated in fp32", "fp32|float32|none", "Gradients are accumulated in fp32: use fp32"},
    {"data_types", "param_dtype buffer_dtype", KeyAction::only, "the dtype is that of bf16 or fp16", "none", "Use bf16 or fp16"},
    // Optimizer and schedule.
    {"optimizer", "type", KeyAction::custom, "optimizer_type"},
    {"optimizer", "params", KeyAction::block, "optimizer.params"},
    {"optimizer", "legacy_fusion", KeyAction::harmless, "the update is one kernel"},
    {"optimizer.params", "lr", KeyAction::set, "learning_rate"},
    {"optimizer.params", "betas", KeyAction::custom, "betas"},
    {"optimizer.params", "eps", KeyAction::set, "adam_epsilon"},
    {"optimizer.params", "weight_decay", KeyAction::set, "weight_decay"},
    {"optimizer.params", "momentum", KeyAction::set, "momentum"},
    {"optimizer.params", "nesterov", KeyAction::set, "nesterov"},
    {"optimizer.params", "max_grad_norm", KeyAction::if_enabled, "max_grad_norm"},
    {"optimizer.params", "dampening", KeyAction::only, "momentum is not dampened", "0", "Dampening is missing: use 0"},
    {"optimizer.params", "torch_adam fused foreach capturable differentiable set_grad_none cuda_aware", KeyAction::harmless, "the update is one kernel, with the same formula"},
    {"optimizer.params", "adam_w_mode adamw_mode", KeyAction::only, "weight decay is decoupled (AdamW)", true_values, "Adam with L2 regularization is missing: use true"},
    {"optimizer.params", "bias_correction", KeyAction::only, "moments are corrected", true_values, "Use true"},
    {"optimizer.params", "amsgrad maximize eps_inside_sqrt", KeyAction::only, "not used", false_values, "This variant of Adam is missing: use false"},
    {"optimizer.params", "fp32_optimizer_states", KeyAction::only, "states are fp32", true_values, "Use --optim adamw_8bit for smaller states"},
    {"optimizer.params", "max_coeff min_coeff muon_lr adam_lr ns_method per_head_muon", KeyAction::only, "not used", "none", no_muon},
    {"optimizer.params", "freeze_step comm_backend_name var_freeze_step var_update_scaler local_step_scaler local_step_clipper onebit_sync_period", KeyAction::only, "not used", "none", "Optimizers with 1-bit communication are missing: use AdamW"},
    {"scheduler", "params", KeyAction::block, "scheduler.params"},
    {"scheduler.params", "warmup_min_lr warmup_min_ratio", KeyAction::only, "the warm-up starts at 0", "0", "The warm-up starts at 0: use 0"},
    {"scheduler.params", "warmup_max_lr", KeyAction::set, "learning_rate"},
    {"scheduler.params", "warmup_num_steps", KeyAction::set, "warmup_steps"},
    {"scheduler.params", "warmup_type", KeyAction::set, "warmup_type"},
    {"scheduler.params", "total_num_steps", KeyAction::set, "max_steps"},
    {"scheduler.params", "cos_min_ratio", KeyAction::set, "min_lr_rate"},
    {"scheduler.params", "last_batch_iteration", KeyAction::only, "a run starts at step 1", "-1", "Use --resume_from_checkpoint"},
    {"scheduler.params", "lr_range_test_* cycle_* decay_*", KeyAction::only, "not used", "none", no_one_cycle},
    // The rest.
    {"activation_checkpointing", "partition_activations contiguous_memory_optimization", KeyAction::harmless, "for tensor parallelism: ranks have parts of activations already; see gradient_checkpointing"},
    {"activation_checkpointing", "number_checkpoints synchronize_checkpoint_boundary profile", KeyAction::harmless, "see gradient_checkpointing"},
    {"activation_checkpointing", "cpu_checkpointing", KeyAction::if_enabled, "offload_activations"},
    {"tensor_parallel", "autotp_size", KeyAction::only, "one rank has a whole layer", "0|1", "Use --tensor_parallel_size"},
    {"tensor_parallel", "tp tensor_parallel", KeyAction::block, "tensor_parallel.tp"},
    {"tensor_parallel", "*", KeyAction::harmless, "for autotp_size above 1 only, which is refused"},
    {"tensor_parallel.tp", "tp_size", KeyAction::only, "one rank has a whole layer", "0|1", "Use --tensor_parallel_size"},
    {"tensor_parallel.tp", "*", KeyAction::harmless, "for tp_size above 1 only, which is refused"},
    {"pipeline", "stages", KeyAction::only, "every rank has all layers", "1", "Pipeline parallelism is missing: use --zero_stage 3"},
    {"pipeline", "*", KeyAction::harmless, "for several stages only, which are refused"},
    {"compile", "passes", KeyAction::only, "no pass is asked for", "none", "Tensor and sequence parallelism are missing: use --zero_stage 3"},
    {"compile", "offload_activation", KeyAction::if_enabled, "offload_activations"},
    {"compile", "offload_opt_states offload_parameters", KeyAction::only, "nothing is offloaded", false_values, no_offload},
    {"compile", "*", KeyAction::harmless, "kernels are compiled ahead of time, and compute the same"},
    {"checkpoint", "tag_validation", KeyAction::harmless, "ranks agree on every checkpoint"},
    {"checkpoint", "load_universal", KeyAction::harmless, any_ranks},
    {"checkpoint", "use_node_local_storage", KeyAction::only, "all ranks write to one directory", false_values, "All ranks write to one directory: use a file system that all nodes see"},
    {"checkpoint", "parallel_write checkpoint_serialization", KeyAction::harmless, "all ranks write HDF5 files side by side"},
    {"checkpoint", "writer", KeyAction::switched, "", "", own_checkpoints},
};

// clang-format on

}  // namespace

std::span<const ExternalKeySpec> deepspeed_key_table() { return deepspeed_rows; }

}  // namespace tessera::jobs
