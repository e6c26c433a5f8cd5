// Rows of the option table for the commands that work on files: convert, inspect, checkpoint.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// rows read better than columns of fields.
// clang-format off

const OptionSpec file_table[] = {
    {.name = "in", .aliases = "input", .words = "DIR", .group = "Convert",
     .help = "what to convert: a checkpoint (or a run's directory: its newest), or a model directory in Hugging Face's form", .commands = for_convert},
    {.name = "out", .aliases = "output", .words = "DIR|FILE.bin", .group = "Convert",
     .help = "where to write: convert, a directory that must not exist; tokenize, a token file", .commands = for_convert | for_tokenize},
    {.name = "from", .type = Type::choice, .default_value = "auto", .words = "auto|native|hf", .group = "Convert",
     .help = "form of the input; auto: what it looks like", .commands = for_convert},
    {.name = "to", .type = Type::choice, .words = "hf|native", .group = "Convert",
     .help = "form of the output: safetensors with config and tokenizer, or a checkpoint of the model alone", .commands = for_convert},
    {.name = "dtype", .type = Type::choice, .words = "fp32|bf16|fp16|float32|bfloat16|float16", .group = "Convert",
     .help = "type of the output's floating tensors, rounded to nearest even [what the input stores]", .matches = "HF torch_dtype",
     .commands = for_convert},
    {.name = "verify", .type = Type::flag, .default_value = "false", .group = "Convert",
     .help = "read input and output again before the output gets its name, and compare every element (exit 3 if one differs)", .commands = for_convert},
    {.name = "force", .type = Type::flag, .default_value = "false", .group = "Convert",
     .help = "an output that exists is moved to OUT.old once the new one is whole", .commands = for_convert},
    {.name = "stats", .type = Type::flag, .default_value = "false", .group = "Inspect",
     .help = "read every element: minimum, maximum, mean, NaNs and infinities", .commands = for_inspect},
    {.name = "grep", .words = "REGEX", .group = "Inspect", .help = "only tensors whose name has a match (ECMAScript)",
     .commands = for_inspect | for_checkpoint},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> file_options() { return file_table; }

}  // namespace tessera::jobs
