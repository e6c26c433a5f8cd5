// SPDX-License-Identifier: Apache-2.0
// Part of the option table: the commands that work on files, which are convert, inspect and checkpoint.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec file_table[] = {
    {.name = "in", .aliases = "input", .values = "DIR", .group = "Convert",
     .help = "input: a checkpoint, a run's directory (its newest checkpoint), or a Hugging Face model directory",
     .commands = for_convert},
    {.name = "out", .aliases = "output", .values = "DIR|FILE", .group = "Convert",
     .help = "output: convert, a directory that does not exist; tokenize, a token file; report, an HTML file "
             "[report.html in the run's directory; of several runs, here]",
     .commands = for_convert | for_tokenize | for_report},
    {.name = "from", .type = Type::choice, .default_value = "auto", .values = "auto|native|hf", .group = "Convert",
     .help = "format of the input; auto: detected", .commands = for_convert},
    {.name = "to", .type = Type::choice, .values = "hf|native", .group = "Convert",
     .help = "format of the output: safetensors with config and tokenizer, or a checkpoint without optimizer state [hf "
             "from a checkpoint, or with --dtype; otherwise native]",
     .commands = for_convert},
    {.name = "dtype", .type = Type::choice, .values = "fp32|bf16|fp16|float32|bfloat16|float16", .group = "Convert",
     .help = "dtype of the output's floating-point tensors, rounded to nearest even [that of the input]",
     .equivalents = "HF torch_dtype", .commands = for_convert},
    {.name = "verify", .type = Type::flag, .default_value = "false", .group = "Convert",
     .help = "before the output gets its final name, read input and output again and compare every element (exit 3 if "
             "one differs)", .commands = for_convert},
    {.name = "force", .type = Type::flag, .default_value = "false", .group = "Convert",
     .help = "rename an existing output to OUT.old once the new one is complete", .commands = for_convert},
    {.name = "stats", .type = Type::flag, .default_value = "false", .group = "Inspect",
     .help = "read every element: minimum, maximum, mean, NaNs and infinities", .commands = for_inspect},
    {.name = "grep", .values = "REGEX", .group = "Inspect", .help = "only tensors whose name matches (ECMAScript)",
     .commands = for_inspect | for_checkpoint},
    {.name = "nodes", .type = Type::integer, .default_value = "1", .group = "Job scripts",
     .help = "nodes of the job", .commands = for_job_script, .min = 1, .max = 1000000},
    {.name = "cores_per_node", .type = Type::integer, .group = "Job scripts",
     .help = "cores of a node [asked of the scheduler]", .commands = for_job_script, .min = 1, .max = 65536},
    {.name = "gpus_per_node", .type = Type::integer, .group = "Job scripts",
     .help = "GPUs of a node that the job uses [asked of the scheduler; LSF: 0]", .commands = for_job_script,
     .min = 0, .max = 1024},
    {.name = "partition", .aliases = "queue", .values = "NAME", .group = "Job scripts",
     .help = "Slurm's partition, the queue of PBS, LSF and Flux [the scheduler's default]",
     .commands = for_job_script},
    {.name = "account", .values = "NAME", .group = "Job scripts",
     .help = "account to charge (LSF: project, Flux: bank)", .commands = for_job_script},
    {.name = "job_name", .default_value = "tessera", .values = "NAME", .group = "Job scripts",
     .help = "name of the job, its log and its output directory", .commands = for_job_script},
    {.name = "launcher", .type = Type::choice, .default_value = "auto", .values = "auto|srun|jsrun|mpirun",
     .group = "Job scripts",
     .help = "who starts the ranks; auto: srun where it has PMIx, flux run under Flux, otherwise mpirun by tessera "
             "launch", .commands = for_job_script},
    {.name = "directive", .type = Type::repeated_text, .values = "TEXT", .group = "Job scripts",
     .help = "a further line for the scheduler, as --directive=--qos=high", .commands = for_job_script},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> file_options() { return file_table; }

}  // namespace tessera::jobs
