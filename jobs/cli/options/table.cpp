// SPDX-License-Identifier: Apache-2.0
// The option table: model, data, batch, optimizer and sharding; joins them with the parts that table_parts.hpp names.
#include "jobs/cli/options/table.hpp"

#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

constexpr const char* sharding_strategies =
    "NO_SHARD|SHARD_GRAD_OP|FULL_SHARD|HYBRID_SHARD|HYBRID_SHARD_ZERO2|zero0|zero1|zero2|zero3";


const OptionSpec model_and_data[] = {
    {.name = "model", .aliases = "model_name_or_path model_id_or_path", .values = "DIR|config.json|ORG/NAME",
     .group = "Model",
     .help = "directory with a Hugging Face config.json (and model.safetensors), the config file itself, or the name of "
             "a model that is in the local cache of Hugging Face or ModelScope",
     .equivalents = "ms-swift --model", .commands = for_computing | for_tokenize},
    {.name = "model_revision", .aliases = "revision", .default_value = "main", .values = "NAME|COMMIT", .group = "Model",
     .help = "branch, tag or commit of a --model that is named as on the Hugging Face Hub",
     .equivalents = "ms-swift --model_revision", .commands = for_computing | for_tokenize},
    {.name = "from_scratch", .type = Type::flag, .default_value = "false", .group = "Model",
     .help = "start from random parameters; otherwise from DIR/model.safetensors"},
    {.name = "dataset", .aliases = "train_dataset", .type = Type::list, .values = "FILE ...", .group = "Data",
     .help = "training files, directories or patterns: text; JSON Lines, .json, .csv and .tsv with texts or "
             "conversations, also .gz or .zst; .bin token files of llm.c; FILE#500: so many rows, FILE:0.3: that share "
             "of them; 'cmd:COMMAND': the JSON Lines that a shell command prints (docs/data.md)",
     .equivalents = "ms-swift --dataset", .commands = for_runs | for_eval | for_tokenize},
    {.name = "val_dataset", .type = Type::list, .values = "FILE ...", .group = "Data", .help = "validation files",
     .equivalents = "ms-swift --val_dataset"},
    {.name = "dataset_depends", .type = Type::list, .values = "FILE ...", .group = "Data",
     .help = "files that the commands of --dataset and --val_dataset read: a command runs again when one has changed",
     .commands = for_runs | for_eval | for_tokenize},
    {.name = "split_dataset_ratio", .type = Type::real, .default_value = "0", .group = "Data",
     .help = "share of the training tokens, taken from the end, to use for validation",
     .equivalents = "ms-swift --split_dataset_ratio", .min = 0, .max = 0.9},
    {.name = "tokenizer", .default_value = "auto", .values = "auto|bytes|PATH", .group = "Data",
     .help = "PATH: a tokenizer.json or its directory; bytes: one token per byte, ids 0-255; auto: the tokenizer.json "
             "(or vocab.json and merges.txt) next to the model's config.json, or bytes if these are the model's "
             "vocabulary",
     .commands = for_computing | for_tokenize},
    {.name = "eos_token", .values = "TOKEN|none", .group = "Data",
     .help = "end-of-document token, spelled as in tokenizer.json [from generation_config.json, config.json or "
             "tokenizer_config.json]", .commands = for_runs | for_eval | for_tokenize},
    {.name = "columns", .values = "JSON", .group = "Data",
     .help = "new names of the keys of rows, as {\"question\": \"query\", \"answer\": \"response\"}",
     .equivalents = "ms-swift --columns", .commands = for_train | for_eval | for_tokenize | for_config},
    {.name = "strict", .type = Type::flag, .default_value = "false", .group = "Data",
     .help = "stop at the first row that cannot be used, text that is not UTF-8, or file of a directory that is left "
             "out; false: skip such rows, replace such bytes, count them and name the first ones",
     .equivalents = "ms-swift --strict", .commands = for_train | for_eval | for_tokenize | for_config},
    {.name = "truncation_strategy", .type = Type::choice, .values = "delete|left|right|split", .group = "Data",
     .help = "documents longer than max_length: leave them out, cut their beginning or their end, or split them "
             "[conversations: delete; texts: split]", .equivalents = "ms-swift --truncation_strategy",
     .commands = for_train | for_eval | for_config},
    {.name = "template", .values = "NAME|FILE", .group = "Data",
     .help = "chat template of conversations [that of the model's directory]", .equivalents = "ms-swift --template",
     .commands = for_train | for_eval | for_tokenize | for_generate | for_config},
    {.name = "system", .values = "TEXT|FILE", .group = "Data",
     .help = "system message of conversations that have none, or a file with it [as the template has it]; generate: with "
             "--chat, before each prompt",
     .equivalents = "ms-swift --system", .commands = for_train | for_eval | for_tokenize | for_generate | for_config},
    {.name = "loss_scale", .type = Type::choice, .default_value = "default", .values = "default|last_round|all",
     .group = "Data",
     .help = "which text of conversations has loss: every assistant's with its end of turn, the last one's, all",
     .equivalents = "ms-swift --loss_scale", .commands = for_train | for_eval | for_tokenize | for_config},
    {.name = "cache_dir", .values = "DIR", .group = "Data",
     .help = "where tokenized text is cached, by a hash of the text and the tokenizer, compressed files are "
             "decompressed, and what commands print is kept [OUTPUT_DIR/cache; eval: ~/.cache/tessera]",
     .commands = for_train | for_eval | for_config},
    {.name = "preview", .type = Type::integer, .default_value = "0", .group = "Data",
     .help = "print the tokens of the first N documents", .commands = for_tokenize, .min = 0, .max = 1000},
    {.name = "dataset_shuffle", .type = Type::flag, .default_value = "true", .group = "Data",
     .help = "shuffle samples by (data_seed, epoch); false: file order, sample k is tokens [k*T, k*T+T]",
     .equivalents = "ms-swift --dataset_shuffle"},
    {.name = "group_by_length", .type = Type::flag, .default_value = "false", .group = "Data",
     .help = "batches of samples of similar length, so that rows have little padding; still a function of (data_seed, "
             "epoch)", .equivalents = "ms-swift; transformers --group_by_length"},
    {.name = "data_seed", .type = Type::integer, .values = "N", .group = "Data", .help = "seed of the shuffle [seed]",
     .equivalents = "ms-swift --data_seed", .min = 0},
    {.name = "max_length", .aliases = "seq_len seq_length", .type = Type::integer, .values = "T", .group = "Data",
     .help = "sequence length in tokens [the model's positions, but at most 4096; eval: at most 2048]",
     .equivalents = "ms-swift --max_length", .commands = for_runs | for_eval, .min = 1},
    {.name = "packing", .type = Type::flag, .default_value = "false", .group = "Data",
     .help = "pack several documents into a sample; attention, positions and targets stay within each document, and a "
             "document longer than a sample is split", .equivalents = "ms-swift --packing; TRL packing",
     .commands = for_train | for_plan | for_eval | for_config},
    {.name = "packing_strategy", .type = Type::choice, .default_value = "binpack", .values = "binpack|sequential",
     .group = "Data",
     .help = "binpack: best-fit-decreasing over each 1000 documents, which wastes least; sequential: in file order",
     .equivalents = "ms-swift --packing_strategy; TRL bfd_split",
     .commands = for_train | for_plan | for_eval | for_config},
    {.name = "padding_free", .type = Type::flag, .default_value = "false", .group = "Data",
     .help = "lay the samples of a micro-batch end to end, as one row without padding; each attends to itself alone",
     .equivalents = "ms-swift; TRL padding_free", .commands = for_train | for_plan | for_eval | for_config},
};

const OptionSpec batch_and_optimizer[] = {
    {.name = "per_device_train_batch_size", .aliases = "micro_batch_size train_micro_batch_size_per_gpu",
     .type = Type::integer, .values = "B", .group = "Batch", .help = "samples of a micro-batch on each rank [8]",
     .equivalents = "ms-swift; DeepSpeed train_micro_batch_size_per_gpu", .min = 1},
    {.name = "gradient_accumulation_steps", .type = Type::integer, .values = "A", .group = "Batch",
     .help = "micro-batches of a rank per optimizer step [from global_batch_size, otherwise 1]",
     .equivalents = "ms-swift; accelerate; DeepSpeed", .min = 1},
    {.name = "global_batch_size", .aliases = "train_batch_size", .type = Type::integer, .values = "G", .group = "Batch",
     .help = "samples of an optimizer step over all W ranks; accumulation = ceil(G/(B*W))",
     .equivalents = "DeepSpeed train_batch_size", .min = 1},
    {.name = "num_train_epochs", .aliases = "epochs", .type = Type::real, .default_value = "1", .group = "Batch",
     .help = "passes over the data; the last, partial batch is trained on too",
     .equivalents = "ms-swift --num_train_epochs", .min = 0},
    {.name = "max_steps", .type = Type::integer, .default_value = "-1", .group = "Batch",
     .help = "number of optimizer steps; if positive, it overrides num_train_epochs",
     .equivalents = "ms-swift --max_steps", .min = -1},
    {.name = "learning_rate", .aliases = "lr", .type = Type::real, .default_value = "3e-4", .group = "Optimizer",
     .help = "peak learning rate", .equivalents = "ms-swift --learning_rate", .min = 0},
    {.name = "lr_scheduler_type", .aliases = "lr_scheduler", .type = Type::choice, .default_value = "cosine",
     .values = "constant|constant_with_warmup|linear|cosine|cosine_with_min_lr|wsd|warmup_stable_decay",
     .group = "Optimizer", .help = "learning-rate schedule after the warm-up",
     .equivalents = "ms-swift --lr_scheduler_type"},
    {.name = "min_lr", .type = Type::real, .default_value = "0", .group = "Optimizer",
     .help = "final learning rate of cosine_with_min_lr and wsd", .equivalents = "HF lr_scheduler_kwargs.min_lr",
     .min = 0},
    {.name = "min_lr_rate", .type = Type::real, .values = "X", .group = "Optimizer",
     .help = "min_lr as a share of learning_rate, in its place", .equivalents = "HF lr_scheduler_kwargs.min_lr_rate; DeepSpeed cos_min_ratio",
     .min = 0, .max = 1},
    {.name = "warmup_type", .type = Type::choice, .default_value = "linear", .values = "linear|log",
     .group = "Optimizer",
     .help = "growth of the learning rate in the warm-up: step s of N, from 0, has the share s/N, or log(s+1)/log(N)",
     .equivalents = "DeepSpeed scheduler.params.warmup_type"},
    {.name = "warmup_steps", .type = Type::steps, .default_value = "0", .values = "N|SHARE", .group = "Optimizer",
     .help = "steps of warm-up, or below 1 their share of all steps, rounded up; if positive, it overrides warmup_ratio",
     .equivalents = "ms-swift --warmup_steps", .min = 0},
    {.name = "warmup_ratio", .type = Type::real, .default_value = "0", .group = "Optimizer",
     .help = "warm-up as a share of all steps, rounded up", .equivalents = "ms-swift --warmup_ratio", .min = 0,
     .max = 1},
    {.name = "lr_decay_steps", .aliases = "num_decay_steps", .type = Type::integer, .values = "N", .group = "Optimizer",
     .help = "steps of the final decay of wsd [a fifth of all steps]",
     .equivalents = "HF lr_scheduler_kwargs.num_decay_steps", .min = 1},
    {.name = "optim", .type = Type::choice, .default_value = "adamw",
     .values = "adamw|adamw_torch|adamw_torch_fused|adamw_8bit|adamw_bnb_8bit|sgd", .group = "Optimizer",
     .help = "the optimizer. adamw, adamw_torch and adamw_torch_fused: AdamW with fp32 state; adamw_8bit and "
             "adamw_bnb_8bit: with block-wise 8-bit state",
     .equivalents = "ms-swift --optim; DeepSpeed optimizer.type"},
    {.name = "momentum", .aliases = "sgd_momentum", .type = Type::real, .default_value = "0", .group = "Optimizer",
     .help = "momentum of sgd; 0: none, and no optimizer state", .equivalents = "DeepSpeed optimizer.params.momentum",
     .min = 0, .max = 0.999999999},
    {.name = "nesterov", .type = Type::flag, .default_value = "false", .group = "Optimizer",
     .help = "Nesterov's momentum, with sgd", .equivalents = "DeepSpeed optimizer.params.nesterov"},
    {.name = "weight_decay", .type = Type::real, .default_value = "0", .group = "Optimizer",
     .help = "weight decay of matrices; biases and norms have none. adamw: decoupled; sgd: added to the gradient",
     .equivalents = "ms-swift --weight_decay",
     .min = 0},
    {.name = "adam_beta1", .type = Type::real, .default_value = "0.9", .group = "Optimizer", .help = "AdamW beta1",
     .equivalents = "ms-swift --adam_beta1", .min = 0, .max = 0.999999999},
    {.name = "adam_beta2", .type = Type::real, .default_value = "0.999", .group = "Optimizer", .help = "AdamW beta2",
     .equivalents = "ms-swift --adam_beta2", .min = 0, .max = 0.999999999},
    {.name = "adam_epsilon", .type = Type::real, .default_value = "1e-8", .group = "Optimizer", .help = "AdamW epsilon",
     .equivalents = "ms-swift --adam_epsilon", .min = 0},
    {.name = "max_grad_norm", .type = Type::real, .default_value = "1", .group = "Optimizer",
     .help = "clip the global gradient norm to this; 0: log the norm, do not clip",
     .equivalents = "ms-swift --max_grad_norm; DeepSpeed gradient_clipping", .min = 0},
    {.name = "seed", .type = Type::integer, .default_value = "42", .group = "Optimizer",
     .help = "seed of random parameters, data order and sampling", .equivalents = "ms-swift --seed",
     .commands = for_runs | for_generate, .min = 0},
};

const OptionSpec sharding_options[] = {
    {.name = "preset", .type = Type::choice, .values = "zero0|zero1|zero2|zero3|hybrid", .group = "Sharding",
     .help = "sharding strategy that files, environment and other options override", .commands = for_computing},
    {.name = "zero_stage", .type = Type::choice, .values = "0|1|2|3", .group = "Sharding",
     .help = "0: nothing is sharded; 1: optimizer state; 2: and gradients; 3: and parameters",
     .equivalents = "DeepSpeed zero_optimization.stage", .commands = for_computing},
    {.name = "sharding_strategy", .type = Type::choice, .default_value = "zero3", .values = sharding_strategies,
     .group = "Sharding", .help = "the same by FSDP's names: FULL_SHARD is zero3, SHARD_GRAD_OP zero2, NO_SHARD zero0",
     .equivalents = "accelerate fsdp_sharding_strategy", .commands = for_computing},
    {.name = "fsdp", .values = "true|false|fsdp2|full_shard|shard_grad_op|no_shard|hybrid_shard", .group = "Sharding",
     .help = "sets sharding_strategy (fsdp2 is FULL_SHARD); true, or without a value: FULL_SHARD, or what fsdp_config "
             "says; false: nothing", .equivalents = "ms-swift --fsdp; HF --fsdp",
     .commands = for_computing},
    {.name = "parallel_strategy", .values = "ddp|fsdp|fsdp2|zero0...zero3|hybrid", .group = "Sharding",
     .help = "sets sharding_strategy (fsdp is FULL_SHARD, ddp is NO_SHARD)", .commands = for_computing},
    {.name = "deepspeed", .values = "zero0...zero3|FILE.json", .group = "Sharding",
     .help = "sets sharding_strategy, or reads a DeepSpeed configuration file", .equivalents = "ms-swift --deepspeed",
     .commands = for_computing},
    {.name = "unit_strategy", .type = Type::list, .values = "GLOB=STRATEGY ...", .group = "Sharding",
     .help = "strategies of single units: 'embed=NO_SHARD' 'layers.*=FULL_SHARD'; the last glob that matches the "
             "whole name of a unit decides; words as in sharding_strategy, or 0 to 3", .commands = for_computing},
    {.name = "wrap_policy", .type = Type::choice, .default_value = "TRANSFORMER_BASED_WRAP",
     .values = "TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP|NO_WRAP", .group = "Sharding",
     .help = "what is gathered and reduced together, as a unit: a transformer block (see --blocks_per_unit), consecutive "
             "blocks of --min_num_params parameters, or the whole model. Embedding and head are units of their own, "
             "except with NO_WRAP",
     .equivalents = "accelerate fsdp_auto_wrap_policy", .commands = for_computing},
    {.name = "blocks_per_unit", .type = Type::integer, .default_value = "1", .group = "Sharding",
     .help = "transformer blocks in a unit; the last one may have fewer", .commands = for_computing, .min = 1},
    {.name = "min_num_params", .type = Type::integer, .default_value = "100000000", .group = "Sharding",
     .help = "parameters from which on consecutive blocks are a unit; sets --wrap_policy SIZE_BASED_WRAP",
     .equivalents = "accelerate fsdp_min_num_params", .commands = for_computing, .min = 1},
    {.name = "shard_group_size", .values = "node|N", .group = "Sharding",
     .help = "ranks that share one sharded copy of the training state [HYBRID_SHARD: those of a node; otherwise all]",
     .equivalents = "DeepSpeed mics_shard_size; torchtitan data_parallel_shard_degree", .commands = for_computing},
    {.name = "context_parallel_size", .aliases = "sequence_parallel_size", .type = Type::integer, .default_value = "1",
     .group = "Sharding",
     .help = "ranks that share each row: each has a part of its tokens, and in attention some heads of all of them. A "
             "micro-batch of B samples is then of such a group, and G counts W/N groups",
     .equivalents = "ms-swift --sequence_parallel_size; accelerate parallelism_config cp_size, sp_size; axolotl "
                    "context_parallel_size",
     .commands = for_train | for_plan | for_config, .min = 1},
    {.name = "context_parallel_kind", .type = Type::choice, .default_value = "auto", .values = "auto|ulysses|gather",
     .group = "Sharding",
     .help = "how ranks that share rows attend; ulysses: each with some heads of whole rows, which are exchanged all to "
             "all; gather: each with all heads of its tokens, over gathered keys and values; auto: ulysses where the "
             "heads can be divided, else gather",
     .equivalents = "accelerate parallelism_config sp_backend", .commands = for_train | for_plan | for_config},
    {.name = "tensor_parallel_size", .type = Type::integer, .default_value = "1", .group = "Sharding",
     .help = "ranks that have parts of the same matrices: each has some heads, a part of the MLPs' width and one of the "
             "vocabulary, of all tokens, and elsewhere a part of the tokens. A micro-batch of B samples is then of such a "
             "group, and G counts W/N groups",
     .equivalents = "accelerate parallelism_config tp_size; torchtitan tensor_parallel_degree; Megatron "
                    "tensor_model_parallel_size",
     .commands = for_train | for_plan | for_config | for_inference, .min = 1},
    {.name = "reshard_after_forward", .type = Type::flag, .default_value = "true", .group = "Sharding",
     .help = "ZeRO-3: free unsharded parameters after forward and gather them again for backward",
     .equivalents = "FSDP2 reshard_after_forward", .commands = for_computing},
    {.name = "forward_prefetch", .default_value = "1", .values = "N|true|false", .group = "Sharding",
     .help = "units whose parameters are gathered ahead in forward (true is 1, false is 0)",
     .equivalents = "accelerate fsdp_forward_prefetch", .commands = for_computing},
    {.name = "backward_prefetch", .default_value = "1", .values = "N|BACKWARD_PRE|BACKWARD_POST|NO_PREFETCH",
     .group = "Sharding",
     .help = "units whose parameters are gathered ahead in backward (BACKWARD_PRE is 1, the other two are 0)",
     .equivalents = "accelerate fsdp_backward_prefetch"},
    {.name = "reduce_gradients", .type = Type::choice, .default_value = "each", .values = "each|shard_each|last",
     .group = "Sharding",
     .help = "reduce gradients after each micro-batch; over the shard group after each and over the replicas once after "
             "the last one; or once after the last one (FSDP's no_sync) [one rank on a GPU: last]",
     .equivalents = "FSDP2 set_requires_all_reduce, set_requires_gradient_sync"},
    {.name = "expert_units", .type = Type::choice, .default_value = "own", .values = "own|block", .group = "Sharding",
     .help = "mixture of experts: own: a layer's experts are one more unit; block: they are in the unit of their block"},
    {.name = "gradient_checkpointing", .type = Type::choice, .default_value = "auto",
     .values = "keep_all|none|selective|full|auto|true|false", .group = "Sharding",
     .help = "activations to recompute in backward rather than keep; full: all of a block (true is full, false is "
             "none); selective: keep attention outputs and MLP products; none: only outputs of norms and activation "
             "functions are recomputed; keep_all: not even those; auto: the fastest of the four that fits in "
             "--device_memory, or in the memory that is free",
     .equivalents = "ms-swift --gradient_checkpointing; accelerate fsdp_activation_checkpointing"},
    {.name = "offload_activations", .aliases = "activation_offloading activation_cpu_offload", .type = Type::flag,
     .default_value = "false", .group = "Sharding",
     .help = "what blocks keep for backward (with --gradient_checkpointing full: their inputs) is stored in pinned host "
             "memory after their forward, and fetched before their backward; the GPU keeps that of two or three blocks",
     .equivalents = "DeepSpeed cpu_checkpointing; accelerate fsdp_activation_cpu_offload; TRL activation_offloading; "
                    "ms-swift activation_cpu_offload"},
    {.name = "offload_optimizer", .type = Type::choice, .default_value = "none", .values = "none|cpu|true|false|disk|nvme",
     .group = "Sharding",
     .help = "cpu: fp32 master weights, optimizer states and gradient accumulators are kept in pinned host memory, and the "
             "host updates them (ZeRO-Offload); the GPU keeps what it computes with (true is cpu). disk (nvme): they are "
             "in a scratch file in --nvme_path, and fetched and stored unit by unit; without a GPU gradients are too",
     .equivalents = "DeepSpeed offload_optimizer.device; accelerate offload_optimizer_device"},
    {.name = "offload_params", .aliases = "offload_param cpu_offload", .type = Type::choice, .default_value = "none",
     .values = "none|cpu|true|false|disk|nvme", .group = "Sharding",
     .help = "cpu: parameters are kept in pinned host memory too, and fetched before each gather; needs parameters that "
             "are sharded (FULL_SHARD, HYBRID_SHARD), and moves the optimizer as --offload_optimizer cpu does. disk (nvme): "
             "they are on disk, with the optimizer; without a GPU",
     .equivalents = "DeepSpeed offload_param.device; accelerate fsdp_offload_params; FSDP CPUOffload"},
    {.name = "nvme_path", .values = "DIR", .group = "Sharding",
     .help = "directory of scratch files for --offload_optimizer disk and --offload_params disk, on a local disk; each "
             "rank allocates its file at the start and removes it at the end",
     .equivalents = "DeepSpeed nvme_path; accelerate offload_optimizer_nvme_path"},
    {.name = "reproducible", .aliases = "deterministic", .type = Type::flag, .default_value = "false",
     .group = "Sharding",
     .help = "the same bits for any power-of-two number of ranks and any strategy, at one micro-batch size"},
};

// clang-format on

std::vector<OptionSpec> all_options() {
  std::vector<OptionSpec> options;
  const auto append = [&options](std::span<const OptionSpec> part) {
    options.insert(options.end(), part.begin(), part.end());
  };
  append(model_and_data);
  append(batch_and_optimizer);
  append(tuning_options());
  append(preference_options());
  append(sharding_options);
  append(device_options());
  append(precision_options());
  append(logging_options());
  append(run_options());
  append(inference_options());
  append(tool_options());
  append(file_options());
  append(no_effect_options());
  return options;
}

}  // namespace

std::span<const OptionSpec> option_table() {
  static const std::vector<OptionSpec> options = all_options();
  return options;
}

}  // namespace tessera::jobs
