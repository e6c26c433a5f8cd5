// SPDX-License-Identifier: Apache-2.0
// Part of the option table: a run's directory, checkpoints, evaluation and profiling.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec run_table[] = {
    {.name = "output_dir", .default_value = "output", .values = "DIR", .group = "Run",
     .help = "the run writes to DIR/vN-<timestamp>/", .equivalents = "ms-swift --output_dir"},
    {.name = "add_version", .type = Type::flag, .default_value = "true", .group = "Run",
     .help = "false: write to output_dir itself", .equivalents = "ms-swift --add_version"},
    {.name = "run_name", .values = "NAME", .group = "Run", .help = "name stored in run.json",
     .equivalents = "HF --run_name"},
    {.name = "max_shard_size", .type = Type::size, .default_value = "5GB", .group = "Run",
     .help = "largest file of a saved model; a larger model is split, with an index",
     .equivalents = "HF save_pretrained(max_shard_size)", .commands = for_runs | for_convert, .min = 1},
    {.name = "save_model", .type = Type::flag, .default_value = "true", .group = "Run",
     .help = "write config.json and model.safetensors at the end"},
    {.name = "save_dtype", .type = Type::choice, .default_value = "auto",
     .values = "auto|fp32|bf16|fp16|float32|bfloat16|float16", .group = "Run",
     .help = "dtype of the saved model, and of convert --merge_lora; auto: that of the model that training starts from, "
             "fp32 with --from_scratch; checkpoints keep fp32 masters", .commands = for_runs | for_convert},
    {.name = "dry_run", .type = Type::flag, .default_value = "false", .group = "Run",
     .help = "train: print the plan and stop", .commands = for_train | for_config},
    {.name = "save_steps", .type = Type::steps, .default_value = "0", .values = "N|SHARE", .group = "Checkpoints",
     .help = "save a checkpoint every N steps, or below 1 after each such share of all steps, and at the end; 0: none", .equivalents = "ms-swift --save_steps",
     .min = 0},
    {.name = "save_strategy", .type = Type::choice, .default_value = "steps", .values = "no|steps|epoch",
     .group = "Checkpoints", .help = "save every save_steps, at the end of each epoch, or never",
     .equivalents = "HF --save_strategy"},
    {.name = "save_every", .type = Type::duration, .default_value = "30m", .values = "30m", .group = "Checkpoints",
     .help = "without save_steps and save_strategy epoch: save a checkpoint when this much time has passed since the last "
             "one; 0: none", .min = 0},
    {.name = "save_total_limit", .type = Type::integer, .values = "K", .group = "Checkpoints",
     .help = "keep the newest K complete checkpoints [all; with save_every 2]", .equivalents = "ms-swift --save_total_limit", .min = 1},
    {.name = "save_only_model", .type = Type::flag, .default_value = "false", .group = "Checkpoints",
     .help = "checkpoints without optimizer state: a third of the size; a run can start from them, but not resume. What "
             "a stop saves has it (exit code 75)",
     .equivalents = "ms-swift --save_only_model"},
    {.name = "save_only_trainable", .type = Type::flag, .default_value = "false", .group = "Checkpoints",
     .help = "checkpoints without frozen parameters: these are read from --model, or from the path of the model that "
             "training started from, and compared by checksum"},
    {.name = "resume_from_checkpoint", .values = "auto|PATH|none", .group = "Checkpoints",
     .help = "resume from PATH; auto: from the newest complete checkpoint under output_dir, in its directory, or start "
             "anew if there is none", .equivalents = "ms-swift --resume_from_checkpoint"},
    {.name = "resume_only_model", .type = Type::flag, .default_value = "false", .group = "Checkpoints",
     .help = "when resuming, load the model alone: optimizer states start at zero",
     .equivalents = "ms-swift --resume_only_model"},
    {.name = "ignore_data_skip", .type = Type::flag, .default_value = "false", .group = "Checkpoints",
     .help = "when resuming, read the data from the beginning", .equivalents = "HF --ignore_data_skip"},
    {.name = "async_save", .type = Type::flag, .default_value = "false", .group = "Checkpoints",
     .help = "write checkpoints asynchronously, during the next steps; a snapshot takes memory, which the plan counts",
     .equivalents = "Megatron --async-save"},
    {.name = "on_save_error", .type = Type::choice, .default_value = "stop", .values = "stop|continue",
     .group = "Checkpoints",
     .help = "if a checkpoint cannot be written: end the run (exit 3), or log a warning and continue training"},
    {.name = "checkpoint_file_size", .type = Type::size, .default_value = "32GiB", .group = "Checkpoints",
     .help = "split a checkpoint into files of about this size, between tensors", .commands = for_runs | for_convert,
     .min = 1},
    {.name = "checkpoint_io", .type = Type::choice, .default_value = "direct", .values = "direct|mpio",
     .group = "Checkpoints",
     .help = "how ranks write a checkpoint's files, with the same bytes: each its own ranges past the page cache, or "
             "all together by parallel HDF5 and MPI-IO (for file systems whose MPI-IO aggregates)"},
    {.name = "checkpoint_alignment", .type = Type::size, .default_value = "4KiB", .group = "Checkpoints",
     .help = "in a checkpoint's files, tensors of at least this size begin at multiples of it: a power of two, 4KiB to "
             "4MiB"},
    {.name = "time_limit", .type = Type::duration, .values = "1h30m", .group = "Checkpoints",
     .help = "save a checkpoint and exit with 75 before this time is over [under Slurm: SLURM_JOB_END_TIME]; "
             "job-script: of the job [4h]",
     .commands = for_runs | for_job_script, .min = 0.001},
    {.name = "eval_steps", .type = Type::steps, .default_value = "0", .values = "N|SHARE", .group = "Evaluation",
     .help = "evaluate every N steps, or below 1 after each such share of all steps; 0: at the end only", .equivalents = "ms-swift --eval_steps", .min = 0},
    {.name = "eval_strategy", .aliases = "evaluation_strategy", .type = Type::choice, .default_value = "steps",
     .values = "no|steps|epoch", .group = "Evaluation",
     .help = "evaluate every eval_steps, or at the end of each epoch, and at the end of the run; no: never",
     .equivalents = "HF --eval_strategy"},
    {.name = "load_best_model_at_end", .type = Type::flag, .default_value = "false", .group = "Evaluation",
     .help = "at the end, load the checkpoint with the best evaluation: samples and the saved model are of it",
     .equivalents = "HF --load_best_model_at_end"},
    {.name = "metric_for_best_model", .values = "NAME", .group = "Evaluation",
     .help = "the evaluation's figure that decides which checkpoint is best, and is not removed by save_total_limit: "
             "loss, ppl, token_acc [loss with load_best_model_at_end]", .equivalents = "HF --metric_for_best_model"},
    {.name = "greater_is_better", .type = Type::flag, .group = "Evaluation",
     .help = "whether a greater metric_for_best_model is better [all but loss and ppl]",
     .equivalents = "HF --greater_is_better"},
    {.name = "eval_on_start", .type = Type::flag, .default_value = "false", .group = "Evaluation",
     .help = "evaluate before step 1", .equivalents = "HF --eval_on_start"},
    {.name = "per_device_eval_batch_size", .type = Type::integer, .values = "B", .group = "Evaluation",
     .help = "evaluation micro-batch of a rank, in samples [as in training; eval: 8]; generate: prompts at a time [8]",
     .equivalents = "ms-swift --per_device_eval_batch_size", .commands = for_computing, .min = 1},
    {.name = "eval_max_batches", .type = Type::integer, .default_value = "0", .group = "Evaluation",
     .help = "evaluate at most N micro-batches per rank; 0: all validation data", .commands = for_runs | for_eval,
     .min = 0},
    {.name = "baseline", .type = Type::choice, .default_value = "none", .values = "none|bigram", .group = "Evaluation",
     .help = "bigram: at the last evaluation, also print the loss of a bigram model fitted to the training tokens"},
    {.name = "sample_prompt", .values = "TEXT", .group = "Evaluation",
     .help = "at the end, continue this text with the trained model and print it"},
    {.name = "sample_tokens", .type = Type::integer, .default_value = "200", .group = "Evaluation",
     .help = "tokens to generate for sample_prompt", .min = 1},
    {.name = "sample_temperature", .type = Type::real, .default_value = "0.8", .group = "Evaluation",
     .help = "sampling temperature for sample_prompt; 0: greedy", .min = 0},
    {.name = "eval_generate_steps", .type = Type::integer, .default_value = "0", .values = "N", .group = "Evaluation",
     .help = "continue the prompts of prompt_file every N steps, sample_tokens tokens each; 0: at the end only",
     .min = 0},
    {.name = "profile_steps", .type = Type::range, .values = "A:B", .group = "Profiling",
     .help = "write a Chrome trace of steps A to B, one file per rank"},
    {.name = "trace_dir", .values = "DIR", .group = "Profiling", .help = "directory of the traces [the run's trace/]"},
    {.name = "profile_ranks", .type = Type::list, .values = "RANK ...", .group = "Profiling",
     .help = "ranks that write a trace [all]"},
    {.name = "hash_params_every", .type = Type::integer, .default_value = "0", .group = "Profiling",
     .help = "log a hash of parameters and optimizer state every N steps; 0: never", .min = 0},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> run_options() { return run_table; }

}  // namespace tessera::jobs
