// SPDX-License-Identifier: Apache-2.0
// Parts of the option table: generation, and the commands that compute no training step.
#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec inference_table[] = {
    {.name = "checkpoint", .values = "DIR", .group = "Model", .help = "a checkpoint of `train`, in place of --model",
     .commands = for_inference | for_config},
    {.name = "prompt", .type = Type::repeated_text, .values = "TEXT", .group = "Generation",
     .help = "a text to continue; repeat the option for more", .commands = for_generate | for_config},
    {.name = "prompt_file", .values = "FILE|-", .group = "Generation",
     .help = "prompts, - is standard input: one per line, or JSON Lines with \"prompt\" (or \"text\"), or with --chat "
             "\"messages\"; train: continued every eval_generate_steps and at the end", .commands = for_generate | for_runs},
    {.name = "chat", .type = Type::flag, .default_value = "false", .group = "Generation",
     .help = "each prompt is a user's message, which the model's chat template turns into text; without a prompt on a "
             "terminal: a conversation",
     .commands = for_generate | for_config},
    {.name = "max_new_tokens", .type = Type::integer, .values = "N", .group = "Generation",
     .help = "most tokens to generate for each prompt [128, or fewer if the model has fewer positions]",
     .equivalents = "transformers; ms-swift --max_new_tokens", .commands = for_generate | for_bench | for_config,
     .min = 1},
    {.name = "temperature", .type = Type::real, .default_value = "0", .group = "Generation",
     .help = "0: greedy; otherwise sample from softmax(logits/temperature)",
     .equivalents = "transformers; ms-swift --temperature", .commands = for_generate | for_config, .min = 0},
    {.name = "top_k", .type = Type::integer, .default_value = "0", .group = "Generation",
     .help = "sample among the k most likely tokens; 0: all", .equivalents = "transformers; ms-swift --top_k",
     .commands = for_generate | for_config, .min = 0},
    {.name = "top_p", .type = Type::real, .default_value = "1", .group = "Generation",
     .help = "nucleus sampling: the fewest tokens whose probabilities reach this sum",
     .equivalents = "transformers; ms-swift --top_p", .commands = for_generate | for_config, .min = 0, .max = 1},
    {.name = "repetition_penalty", .type = Type::real, .default_value = "1", .group = "Generation",
     .help = "above 1: tokens that are already in the text become less likely",
     .equivalents = "transformers; ms-swift --repetition_penalty", .commands = for_generate | for_config,
     .min = 0.000001},
};

const OptionSpec tool_table[] = {
    {.name = "world_size", .aliases = "num_processes", .type = Type::integer, .default_value = "1", .group = "Plan",
     .help = "ranks of the planned run", .equivalents = "accelerate num_processes", .commands = for_plan | for_config,
     .min = 1, .max = 1048576},
    {.name = "device_memory", .type = Type::size, .values = "BYTES", .group = "Plan",
     .help = "memory that a rank may use; plan also prints the largest micro-batch that fits",
     .commands = for_plan | for_train | for_config | for_inference, .min = 1},
    {.name = "print_schedule", .type = Type::flag, .default_value = "false", .group = "Plan",
     .help = "print the verified schedules as text: what is gathered once before the first step, and the step", .commands = for_plan | for_config},
    {.name = "explain", .type = Type::flag, .default_value = "false", .group = "Plan",
     .help = "explain how each figure is computed", .commands = for_plan | for_config},
    {.name = "json", .type = Type::flag, .default_value = "false", .group = "Plan", .help = "print tables as JSON",
     .commands = for_plan | for_bench | for_doctor | for_config | for_inference | for_inspect | for_checkpoint},
    {.name = "shape", .type = Type::choice, .values = model_preset_names, .group = "Model",
     .help = "in place of --model: a released model's config, with random weights (--from_scratch); small: 6 layers, "
             "hidden size 384, 6 heads, vocabulary 256"},
    {.name = "bench_steps", .type = Type::integer, .default_value = "10", .group = "Bench",
     .help = "measured steps of each strategy", .commands = for_bench | for_config, .min = 1, .max = 100000},
    {.name = "gemms", .type = Type::flag, .default_value = "false", .group = "Bench",
     .help = "bench step on a GPU: print every GEMM of a step with its TFLOP/s, its share of their time and of the peak",
     .commands = for_bench | for_config},
    {.name = "bench_repeats", .type = Type::integer, .default_value = "10", .group = "Bench",
     .help = "measurements of each figure; the best is reported, by bench io, scratch and convert the median [convert: 3]",
     .commands = for_bench | for_config, .min = 1, .max = 100000},
    {.name = "bench_bytes", .type = Type::size, .default_value = "64MiB", .group = "Bench",
     .help = "bench collectives: size of the buffer", .commands = for_bench | for_config},
    {.name = "size", .type = Type::size, .default_value = "2GiB", .group = "Bench",
     .help = "bench io: size of the training state; bench scratch: of the files; bench convert: size of the "
             "model; bench kernels: of an operand, 8MiB by default",
     .commands = for_bench | for_config},
    {.name = "dir", .default_value = ".", .values = "DIR", .group = "Bench",
     .help = "bench io, scratch and convert: directory to write to and read from; doctor: look at its file system too",
     .commands = for_bench | for_config | for_doctor},
    {.name = "help", .type = Type::flag, .default_value = "false", .group = "General",
     .help = "the options of a command", .commands = for_all | for_launch},
    {.name = "help_all", .type = Type::flag, .default_value = "false", .group = "General",
     .help = "the same with types, defaults, aliases and the names in other tools", .commands = for_all | for_launch},
    {.name = "help_markdown", .type = Type::flag, .default_value = "false", .group = "General",
     .help = "print docs/cli.md", .commands = for_all},
    {.name = "man", .type = Type::flag, .default_value = "false", .group = "General",
     .help = "print the man page (roff)", .commands = for_all},
    {.name = "schema", .type = Type::flag, .default_value = "false", .group = "General",
     .help = "print a JSON schema of the options", .commands = for_all},
    {.name = "version", .type = Type::flag, .default_value = "false", .group = "General",
     .help = "print the versions of the program, MPI and BLAS, and the commit", .commands = for_all},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> inference_options() { return inference_table; }
std::span<const OptionSpec> tool_options() { return tool_table; }

}  // namespace tessera::jobs
