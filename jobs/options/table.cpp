// The rows of the option table: what is built. Rows that are refused by name or change nothing stand in table_later.cpp.
#include "jobs/options/table.hpp"

#include "jobs/options/rows.hpp"

namespace tessera::jobs {

namespace {

// clang-format off: rows read better than columns of fields.

constexpr const char* sharding_words = "NO_SHARD|SHARD_GRAD_OP|FULL_SHARD|HYBRID_SHARD|HYBRID_SHARD_ZERO2|zero0|zero1|zero2|zero3";

const OptionSpec model_and_data[] = {
    {.name = "model", .aliases = "model_name_or_path model_id_or_path", .words = "DIR|config.json", .group = "Model",
     .help = "directory with a config.json in Hugging Face's form (and model.safetensors), or such a config file",
     .matches = "ms-swift --model", .commands = for_computing},
    {.name = "from_scratch", .type = Type::flag, .fallback = "false", .group = "Model",
     .help = "start from fresh parameters; otherwise from DIR/model.safetensors"},
    {.name = "dataset", .aliases = "train_dataset", .type = Type::list, .words = "FILE ...", .group = "Data",
     .help = "files of training data: text, .jsonl with a \"text\" key, llm.c .bin tokens",
     .matches = "ms-swift --dataset", .commands = for_runs | for_eval},
    {.name = "val_dataset", .type = Type::list, .words = "FILE ...", .group = "Data", .help = "files of validation data",
     .matches = "ms-swift --val_dataset"},
    {.name = "split_dataset_ratio", .type = Type::real, .fallback = "0", .group = "Data",
     .help = "hold out this share of the tokens, from the end, for validation", .matches = "ms-swift --split_dataset_ratio",
     .least = 0, .most = 0.9},
    {.name = "tokenizer", .type = Type::choice, .fallback = "bytes", .words = "bytes", .group = "Data",
     .help = "how text becomes tokens; bytes: one token per byte, ids 0-255", .commands = for_computing},
    {.name = "dataset_shuffle", .type = Type::flag, .fallback = "true", .group = "Data",
     .help = "draw samples in an order of (seed, epoch); false: sample k is tokens [k*T, k*T+T], in file order",
     .matches = "ms-swift --dataset_shuffle"},
    {.name = "data_seed", .type = Type::integer, .words = "N", .group = "Data", .help = "seed of the data order [seed]",
     .matches = "ms-swift --data_seed", .least = 0},
    {.name = "max_length", .aliases = "seq_len seq_length", .type = Type::integer, .words = "T", .group = "Data",
     .help = "tokens of a sample [the model's longest; eval: at most 2048 of them]", .matches = "ms-swift --max_length",
     .commands = for_runs | for_eval, .least = 1},
};

const OptionSpec batch_and_optimizer[] = {
    {.name = "per_device_train_batch_size", .aliases = "micro_batch_size train_micro_batch_size_per_gpu",
     .type = Type::integer, .words = "B", .group = "Batch", .help = "samples of a micro-batch on each rank [8]",
     .matches = "ms-swift; DeepSpeed train_micro_batch_size_per_gpu", .least = 1},
    {.name = "gradient_accumulation_steps", .type = Type::integer, .words = "A", .group = "Batch",
     .help = "micro-batches of a rank per optimizer step [from the batch equation, else 1]",
     .matches = "ms-swift; accelerate; DeepSpeed", .least = 1},
    {.name = "global_batch_size", .aliases = "train_batch_size", .type = Type::integer, .words = "G", .group = "Batch",
     .help = "samples of an optimizer step over all ranks; accumulation = ceil(G/(B*W))",
     .matches = "DeepSpeed train_batch_size", .least = 1},
    {.name = "num_train_epochs", .aliases = "epochs", .type = Type::real, .fallback = "1", .group = "Batch",
     .help = "passes over the data; its last partial batch is trained too", .matches = "ms-swift --num_train_epochs",
     .least = 0},
    {.name = "max_steps", .type = Type::integer, .fallback = "-1", .group = "Batch",
     .help = "optimizer steps in all; goes before num_train_epochs when positive", .matches = "ms-swift --max_steps",
     .least = -1},
    {.name = "learning_rate", .aliases = "lr", .type = Type::real, .fallback = "3e-4", .group = "Optimizer",
     .help = "peak learning rate", .matches = "ms-swift --learning_rate", .least = 0},
    {.name = "lr_scheduler_type", .aliases = "lr_scheduler", .type = Type::choice, .fallback = "cosine",
     .words = "constant|constant_with_warmup|linear|cosine|cosine_with_min_lr|wsd|warmup_stable_decay", .group = "Optimizer",
     .help = "schedule of the learning rate after the warm-up", .matches = "ms-swift --lr_scheduler_type"},
    {.name = "min_lr", .type = Type::real, .fallback = "0", .group = "Optimizer",
     .help = "where cosine_with_min_lr and wsd end", .matches = "HF lr_scheduler_kwargs.min_lr", .least = 0},
    {.name = "warmup_steps", .type = Type::integer, .fallback = "0", .group = "Optimizer",
     .help = "steps of linear warm-up; goes before warmup_ratio", .matches = "ms-swift --warmup_steps", .least = 0},
    {.name = "warmup_ratio", .type = Type::real, .fallback = "0", .group = "Optimizer",
     .help = "warm-up as a share of all steps (rounded up)", .matches = "ms-swift --warmup_ratio", .least = 0, .most = 1},
    {.name = "lr_decay_steps", .aliases = "num_decay_steps", .type = Type::integer, .words = "N", .group = "Optimizer",
     .help = "steps of wsd's final decay [a fifth of all]", .matches = "HF lr_scheduler_kwargs.num_decay_steps",
     .least = 1},
    {.name = "weight_decay", .type = Type::real, .fallback = "0", .group = "Optimizer",
     .help = "decoupled decay of weight matrices (not of biases and norms)", .matches = "ms-swift --weight_decay",
     .least = 0},
    {.name = "adam_beta1", .type = Type::real, .fallback = "0.9", .group = "Optimizer", .help = "AdamW beta1",
     .matches = "ms-swift --adam_beta1", .least = 0, .most = 0.999999999},
    {.name = "adam_beta2", .type = Type::real, .fallback = "0.999", .group = "Optimizer", .help = "AdamW beta2",
     .matches = "ms-swift --adam_beta2", .least = 0, .most = 0.999999999},
    {.name = "adam_epsilon", .type = Type::real, .fallback = "1e-8", .group = "Optimizer", .help = "AdamW epsilon",
     .matches = "ms-swift --adam_epsilon", .least = 0},
    {.name = "max_grad_norm", .type = Type::real, .fallback = "1", .group = "Optimizer",
     .help = "clip the gradient's global norm to this; 0: measure, do not clip",
     .matches = "ms-swift --max_grad_norm; DeepSpeed gradient_clipping", .least = 0},
    {.name = "seed", .type = Type::integer, .fallback = "42", .group = "Optimizer",
     .help = "seed of fresh parameters, data order and sampling", .matches = "ms-swift --seed",
     .commands = for_runs | for_generate, .least = 0},
};

const OptionSpec sharding_options[] = {
    {.name = "preset", .type = Type::choice, .words = "zero0|zero1|zero2|zero3|hybrid", .group = "Sharding",
     .help = "a strategy below every other layer of configuration", .commands = for_computing},
    {.name = "zero_stage", .type = Type::choice, .words = "0|1|2|3", .group = "Sharding",
     .help = "what is sharded: 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters",
     .matches = "DeepSpeed zero_optimization.stage", .commands = for_computing},
    {.name = "sharding_strategy", .type = Type::choice, .fallback = "zero3", .words = sharding_words, .group = "Sharding",
     .help = "the same in FSDP's words", .matches = "accelerate fsdp_sharding_strategy", .commands = for_computing},
    {.name = "fsdp", .words = "fsdp2|full_shard|shard_grad_op|no_shard|hybrid_shard", .group = "Sharding",
     .help = "maps to sharding_strategy (fsdp2 = FULL_SHARD)", .matches = "ms-swift --fsdp; HF --fsdp",
     .commands = for_computing},
    {.name = "parallel_strategy", .words = "ddp|fsdp|fsdp2|zero0...zero3|hybrid", .group = "Sharding",
     .help = "maps to sharding_strategy (fsdp = FULL_SHARD, ddp = NO_SHARD)", .commands = for_computing},
    {.name = "deepspeed", .words = "zero0...zero3|FILE.json", .group = "Sharding",
     .help = "maps to sharding_strategy, or reads a DeepSpeed file", .matches = "ms-swift --deepspeed",
     .commands = for_computing},
    {.name = "shard_group_size", .words = "node|N", .group = "Sharding",
     .help = "ranks that share one copy of the state [HYBRID words: the node; else all ranks]",
     .matches = "DeepSpeed zero_hpz_partition_size; torchtitan data_parallel_shard_degree", .commands = for_computing},
    {.name = "reshard_after_forward", .type = Type::flag, .fallback = "true", .group = "Sharding",
     .help = "ZeRO-3: give gathered parameters back between forward and backward",
     .matches = "accelerate fsdp_reshard_after_forward", .commands = for_computing},
    {.name = "forward_prefetch", .fallback = "1", .words = "N|true|false", .group = "Sharding",
     .help = "units gathered ahead of their forward (true = 1, false = 0)",
     .matches = "accelerate fsdp_forward_prefetch", .commands = for_computing},
    {.name = "backward_prefetch", .fallback = "1", .words = "N|BACKWARD_PRE|BACKWARD_POST|NO_PREFETCH", .group = "Sharding",
     .help = "units gathered ahead of their backward (BACKWARD_PRE = 1, BACKWARD_POST and NO_PREFETCH = 0)",
     .matches = "accelerate fsdp_backward_prefetch"},
    {.name = "reduce_gradients", .type = Type::choice, .fallback = "each", .words = "each|last", .group = "Sharding",
     .help = "reduce after each micro-batch, or once after the last (FSDP's no_sync)"},
    {.name = "gradient_checkpointing", .type = Type::choice, .fallback = "none", .words = "none|full|true|false|selective",
     .group = "Sharding", .help = "full: run a block's forward again before its backward instead of keeping activations",
     .matches = "ms-swift --gradient_checkpointing; accelerate fsdp_activation_checkpointing"},
    {.name = "reproducible", .aliases = "deterministic", .type = Type::flag, .fallback = "false", .group = "Sharding",
     .help = "bitwise the same for any power of two of ranks, any strategy, any split of the batch into micro-batches of equal size"},
    {.name = "comm", .type = Type::choice, .fallback = "auto", .words = "auto|mpi|node", .group = "Sharding",
     .help = "transport: node (shared memory on a host, MPI between hosts) or mpi", .commands = for_computing},
    {.name = "comm_timeout", .aliases = "ddp_timeout", .type = Type::duration, .fallback = "600", .group = "Sharding",
     .help = "a rank later than this in a collective ends the run", .matches = "ms-swift --ddp_timeout",
     .commands = for_computing, .least = 0.001},
    {.name = "ranks_per_node", .type = Type::integer, .words = "N", .group = "Sharding",
     .help = "treat each N consecutive ranks as a node [what the hosts say; plan: all ranks on one]",
     .commands = for_computing, .least = 1},
    {.name = "threads", .aliases = "num_threads", .type = Type::integer, .words = "N", .group = "Sharding",
     .help = "threads of a rank [the cores of its affinity mask, shared fairly]",
     .commands = for_computing, .least = 1, .most = 4096},
    {.name = "backend", .aliases = "device", .type = Type::choice, .fallback = "auto", .words = "auto|cpu|cuda",
     .group = "Sharding", .help = "where to compute; this build has cpu only",
     .commands = for_computing, .status = Status::not_built,
     .fine = "auto|cpu"},
};

const OptionSpec run_and_logging[] = {
    {.name = "output_dir", .type = Type::text, .fallback = "output", .words = "DIR", .group = "Run",
     .help = "where the run writes: DIR/vN-<timestamp>/", .matches = "ms-swift --output_dir"},
    {.name = "add_version", .type = Type::flag, .fallback = "true", .group = "Run",
     .help = "false: write into output_dir itself", .matches = "ms-swift --add_version"},
    {.name = "run_name", .type = Type::text, .words = "NAME", .group = "Run", .help = "a name for run.json",
     .matches = "HF --run_name"},
    {.name = "max_shard_size", .type = Type::size, .fallback = "5GB", .group = "Run",
     .help = "largest file of the final model; beyond it, shards and an index", .matches = "HF save_pretrained(max_shard_size)"},
    {.name = "save_model", .type = Type::flag, .fallback = "true", .group = "Run",
     .help = "write config.json and model.safetensors at the end"},
    {.name = "dry_run", .type = Type::flag, .fallback = "false", .group = "Run", .help = "train: print the plan and stop",
     .commands = for_train | for_config},
    {.name = "logging_steps", .type = Type::integer, .fallback = "5", .group = "Logging",
     .help = "a step line every N steps", .matches = "ms-swift --logging_steps", .least = 1},
    {.name = "logging_first_step", .type = Type::flag, .fallback = "true", .group = "Logging", .help = "and one for step 1",
     .matches = "HF --logging_first_step"},
    {.name = "quiet", .type = Type::flag, .fallback = "false", .group = "Logging", .help = "warnings and errors only",
     .commands = for_all},
    {.name = "werror", .type = Type::flag, .fallback = "false", .group = "Logging",
     .help = "a warning before the first step is an error (exit 2)", .commands = for_computing},
    {.name = "eval_steps", .type = Type::integer, .fallback = "0", .group = "Evaluation",
     .help = "evaluate every N steps; 0: at the end only", .matches = "ms-swift --eval_steps", .least = 0},
    {.name = "eval_on_start", .type = Type::flag, .fallback = "false", .group = "Evaluation",
     .help = "evaluate before step 1", .matches = "HF --eval_on_start"},
    {.name = "per_device_eval_batch_size", .type = Type::integer, .words = "B", .group = "Evaluation",
     .help = "samples of an evaluation micro-batch [as in training]; prompts of a micro-batch, samples of eval [8]",
     .matches = "ms-swift --per_device_eval_batch_size", .commands = for_computing,
     .least = 1},
    {.name = "eval_max_batches", .type = Type::integer, .fallback = "0", .group = "Evaluation",
     .help = "evaluate at most N micro-batches per rank; 0: all of the validation data",
     .commands = for_runs | for_eval, .least = 0},
    {.name = "baseline", .type = Type::choice, .fallback = "none", .words = "none|bigram", .group = "Evaluation",
     .help = "print beside the last evaluation the loss of a bigram model fitted on the training tokens"},
    {.name = "sample_prompt", .type = Type::text, .words = "TEXT", .group = "Evaluation",
     .help = "continue this text at the end and print it"},
    {.name = "sample_tokens", .type = Type::integer, .fallback = "200", .group = "Evaluation",
     .help = "tokens of the sample", .least = 1},
    {.name = "sample_temperature", .type = Type::real, .fallback = "0.8", .group = "Evaluation",
     .help = "temperature of the sample; 0: greedy", .least = 0},
    {.name = "profile_steps", .type = Type::range, .words = "A:B", .group = "Profiling",
     .help = "write a Chrome trace of steps A to B, one file per rank"},
    {.name = "trace_dir", .type = Type::text, .words = "DIR", .group = "Profiling",
     .help = "where traces go [the run's trace/]"},
    {.name = "profile_ranks", .type = Type::list, .words = "RANK ...", .group = "Profiling",
     .help = "ranks that write a trace [all]"},
    {.name = "hash_params_every", .type = Type::integer, .fallback = "0", .group = "Profiling",
     .help = "log a hash of parameters and moments every N steps; 0: never", .least = 0},
};

const OptionSpec inference_options[] = {
    {.name = "checkpoint", .type = Type::text, .words = "DIR", .group = "Model",
     .help = "a checkpoint that train has written, instead of --model", .commands = for_inference | for_config},
    {.name = "prompt", .type = Type::texts, .words = "TEXT", .group = "Generation",
     .help = "a text to continue; give the option again for each", .commands = for_generate | for_config},
    {.name = "prompt_file", .type = Type::text, .words = "FILE", .group = "Generation",
     .help = "more prompts: one a line, or .jsonl with a \"prompt\" (or \"text\") key",
     .commands = for_generate | for_config},
    {.name = "max_new_tokens", .type = Type::integer, .words = "N", .group = "Generation",
     .help = "most tokens to add to each [128, or as many as the model has positions for]",
     .matches = "transformers; ms-swift --max_new_tokens", .commands = for_generate | for_bench | for_config, .least = 1},
    {.name = "temperature", .type = Type::real, .fallback = "0", .group = "Generation",
     .help = "0: the likeliest token; else draw from the softmax of logits/temperature",
     .matches = "transformers; ms-swift --temperature", .commands = for_generate | for_config, .least = 0},
    {.name = "top_k", .type = Type::integer, .fallback = "0", .group = "Generation",
     .help = "draw among the k likeliest tokens; 0: all", .matches = "transformers; ms-swift --top_k",
     .commands = for_generate | for_config, .least = 0},
    {.name = "top_p", .type = Type::real, .fallback = "1", .group = "Generation",
     .help = "draw among the fewest tokens that hold this share of the probability",
     .matches = "transformers; ms-swift --top_p", .commands = for_generate | for_config, .least = 0, .most = 1},
    {.name = "repetition_penalty", .type = Type::real, .fallback = "1", .group = "Generation",
     .help = "above 1: tokens that the text holds already become less likely",
     .matches = "transformers; ms-swift --repetition_penalty", .commands = for_generate | for_config, .least = 0.000001},
};

const OptionSpec tool_options[] = {
    {.name = "world_size", .aliases = "num_processes", .type = Type::integer, .fallback = "1", .group = "Plan",
     .help = "ranks of the run to plan", .matches = "accelerate num_processes", .commands = for_plan | for_config,
     .least = 1, .most = 1048576},
    {.name = "device_memory", .type = Type::size, .words = "BYTES", .group = "Plan",
     .help = "memory of a rank: what must fit, and the largest micro-batch that does",
     .commands = for_plan | for_train | for_config | for_inference},
    {.name = "print_schedule", .type = Type::flag, .fallback = "false", .group = "Plan",
     .help = "print the verified schedule of a training step as text", .commands = for_plan | for_config},
    {.name = "explain", .type = Type::flag, .fallback = "false", .group = "Plan", .help = "say how each figure is made",
     .commands = for_plan | for_config},
    {.name = "json", .type = Type::flag, .fallback = "false", .group = "Plan", .help = "print tables as JSON",
     .commands = for_plan | for_bench | for_doctor | for_config | for_inference},
    {.name = "shape", .type = Type::choice, .words = "gpt2|small", .group = "Bench",
     .help = "a built-in model: gpt2 (124M) or small (6 layers x 384, 6 heads, V 256)",
     .commands = for_bench | for_plan | for_config},
    {.name = "bench_steps", .type = Type::integer, .fallback = "10", .group = "Bench",
     .help = "measured steps of each strategy", .commands = for_bench | for_config, .least = 1, .most = 100000},
    {.name = "bench_repeats", .type = Type::integer, .fallback = "10", .group = "Bench", .help = "bench gemm: best of N",
     .commands = for_bench | for_config, .least = 1, .most = 100000},
    {.name = "bench_bytes", .type = Type::size, .fallback = "64MiB", .group = "Bench",
     .help = "bench collectives: bytes of the whole buffer", .commands = for_bench | for_config},
    {.name = "help", .type = Type::flag, .fallback = "false", .group = "General", .help = "short help of a command",
     .commands = for_all},
    {.name = "help_all", .type = Type::flag, .fallback = "false", .group = "General",
     .help = "every option, with type, default, aliases and matching names", .commands = for_all},
    {.name = "help_markdown", .type = Type::flag, .fallback = "false", .group = "General", .help = "docs/cli.md",
     .commands = for_all},
    {.name = "man", .type = Type::flag, .fallback = "false", .group = "General", .help = "the man page (roff)",
     .commands = for_all},
    {.name = "schema", .type = Type::flag, .fallback = "false", .group = "General", .help = "the options as a JSON schema",
     .commands = for_all},
    {.name = "version", .type = Type::flag, .fallback = "false", .group = "General",
     .help = "versions of the program, MPI, BLAS, and the commit it was built from", .commands = for_all},
};

// clang-format on

std::vector<OptionSpec> all_rows() {
  std::vector<OptionSpec> rows;
  const auto append = [&rows](std::span<const OptionSpec> part) { rows.insert(rows.end(), part.begin(), part.end()); };
  append(model_and_data);
  append(batch_and_optimizer);
  append(sharding_options);
  append(run_and_logging);
  append(inference_options);
  append(tool_options);
  append(later_rows());
  return rows;
}

}  // namespace

std::span<const OptionSpec> option_table() {
  static const std::vector<OptionSpec> rows = all_rows();
  return rows;
}

}  // namespace tessera::jobs
