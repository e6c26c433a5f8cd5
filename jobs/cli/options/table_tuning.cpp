// Part of the option table: what of a model is trained.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec tuning_table[] = {
    {.name = "stage", .type = Type::choice, .default_value = "pt", .values = "pt|sft", .group = "Tuning",
     .help = "pt: pre-training on text; sft: supervised fine-tuning, with other defaults (docs/fine-tuning.md), which "
             "are printed at the start", .equivalents = "ms-swift sft, pt"},
    {.name = "freeze_parameters", .aliases = "freeze", .type = Type::list, .values = "GLOB ...", .group = "Tuning",
     .help = "parameters that are not trained: globs over their names (transformer.wte.weight, *.bias) or leading parts "
             "of names (h.0)", .equivalents = "ms-swift --freeze_parameters"},
    {.name = "trainable_parameters", .aliases = "trainable", .type = Type::list, .values = "GLOB ...",
     .group = "Tuning",
     .help = "parameters that are trained: of the globs of both options, in the order given, the last match wins. If "
             "this option is the first or the only one, all other parameters are frozen",
     .equivalents = "ms-swift --trainable_parameters"},
    {.name = "param_groups", .type = Type::repeated_text, .values = "\"GLOB lr_scale=X weight_decay=Y\"",
     .group = "Tuning",
     .help = "learning-rate factor and weight decay (one or both) of the parameters that the glob selects, as in "
             "freeze_parameters; repeat the option for more groups. For each value the last match wins. "
             "weight_decay replaces --weight_decay, for biases and norms too",
     .equivalents = "PyTorch param_groups"},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> tuning_options() { return tuning_table; }

}  // namespace tessera::jobs
