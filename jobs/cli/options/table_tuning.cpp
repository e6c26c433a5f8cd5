// SPDX-License-Identifier: Apache-2.0
// Part of the option table: what of a model is trained.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec tuning_table[] = {
    {.name = "stage", .type = Type::choice, .default_value = "pt", .values = "pt|sft|rlhf", .group = "Tuning",
     .help = "pt: pre-training on text; sft: supervised fine-tuning, with other defaults (docs/fine-tuning.md), which "
             "are printed at the start; rlhf: learning from preferences (docs/preferences.md)",
     .equivalents = "ms-swift sft, pt, rlhf"},
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
    {.name = "tuner_type", .aliases = "train_type", .type = Type::choice, .default_value = "full",
     .values = "full|lora", .group = "Tuning",
     .help = "full: train the parameters of the model; lora: train low-rank adapters of a frozen model",
     .equivalents = "ms-swift --tuner_type, --train_type"},
    {.name = "lora_rank", .type = Type::integer, .default_value = "8", .group = "Tuning",
     .help = "rank of adapters", .equivalents = "PEFT r", .min = 1},
    {.name = "lora_alpha", .type = Type::real, .default_value = "32", .group = "Tuning",
     .help = "adapters are scaled by alpha / rank", .equivalents = "PEFT lora_alpha", .min = 0.001},
    {.name = "lora_dropout", .type = Type::real, .default_value = "0.05", .group = "Tuning",
     .help = "dropout of the input of adapters, below 1", .equivalents = "PEFT lora_dropout", .min = 0, .max = 1},
    {.name = "target_modules", .type = Type::list, .values = "all-linear|NAME ...", .group = "Tuning",
     .help = "modules that get adapters: names as q_proj or c_attn, or ends of names after a dot; all-linear: every "
             "Linear but lm_head, routers and experts [all-linear]", .equivalents = "PEFT target_modules"},
    {.name = "target_regex", .values = "REGEX", .group = "Tuning",
     .help = "modules that get adapters: those whose whole name in transformers matches (ECMAScript), in place of "
             "target_modules", .equivalents = "ms-swift --target_regex; PEFT target_modules as a string"},
    {.name = "modules_to_save", .type = Type::list, .values = "NAME ...", .group = "Tuning",
     .help = "modules that are trained in full beside the adapters, as embed_tokens and lm_head",
     .equivalents = "PEFT modules_to_save"},
    {.name = "lora_bias", .type = Type::choice, .default_value = "none", .values = "none|all|lora_only",
     .group = "Tuning", .help = "biases that are trained beside the adapters: none, all, or those of modules with one",
     .equivalents = "PEFT bias"},
    {.name = "use_rslora", .type = Type::flag, .default_value = "false", .group = "Tuning",
     .help = "scale adapters by alpha / sqrt(rank)", .equivalents = "PEFT use_rslora"},
    {.name = "init_lora_weights", .type = Type::choice, .default_value = "true", .values = "true|gaussian",
     .group = "Tuning", .help = "initial values of A: uniform in 1 / sqrt(in), or normal with deviation 1 / rank; B is 0",
     .equivalents = "PEFT init_lora_weights"},
    {.name = "lorap_lr_ratio", .type = Type::real, .values = "X", .group = "Tuning",
     .help = "learning rate of B as a multiple of A's (LoRA+)", .equivalents = "ms-swift --lorap_lr_ratio", .min = 0},
    {.name = "adapters", .values = "DIR", .group = "Tuning",
     .help = "an adapter directory of PEFT or of a LoRA run: train continues it, generate and eval apply it to "
             "--model [the base model that adapter_config.json names]",
     .equivalents = "ms-swift --adapters", .commands = for_runs | for_inference | for_convert},
    {.name = "quant_method", .type = Type::choice, .default_value = "none", .values = "none|bnb", .group = "Tuning",
     .help = "bnb: keep the weights of the frozen base model's Linears quantized, as bitsandbytes does (docs/qlora.md)",
     .equivalents = "ms-swift --quant_method", .commands = for_computing},
    {.name = "quant_bits", .type = Type::choice, .default_value = "none", .values = "none|4|8", .group = "Tuning",
     .help = "4: nf4 or fp4; 8: int8 by rows", .equivalents = "ms-swift --quant_bits; transformers load_in_4bit, load_in_8bit",
     .commands = for_computing},
    {.name = "bnb_4bit_quant_type", .type = Type::choice, .default_value = "nf4", .values = "nf4|fp4", .group = "Tuning",
     .help = "code of 4 bits", .equivalents = "transformers bnb_4bit_quant_type", .commands = for_computing},
    {.name = "bnb_4bit_use_double_quant", .type = Type::flag, .default_value = "true", .group = "Tuning",
     .help = "the absmax of blocks in 8 bits, not in fp32: 0.516 bytes an element in place of 0.5625",
     .equivalents = "transformers bnb_4bit_use_double_quant", .commands = for_computing},
    {.name = "bnb_4bit_compute_dtype", .type = Type::choice, .default_value = "none",
     .values = "none|float32|float16|bfloat16", .group = "Tuning",
     .help = "the type that the run computes in, as mixed_precision: if both are given, another one is refused",
     .equivalents = "transformers bnb_4bit_compute_dtype", .commands = for_computing},
    {.name = "bnb_4bit_quant_storage", .type = Type::choice, .default_value = "none", .values = "none|uint8",
     .group = "Tuning", .help = "the type that holds the codes", .equivalents = "transformers bnb_4bit_quant_storage",
     .commands = for_computing},
    {.name = "merge_lora", .type = Type::flag, .default_value = "false", .group = "Convert",
     .help = "write the model of --in with the adapter of --adapters added to its weights; --in may be a checkpoint of "
             "a LoRA run", .equivalents = "ms-swift --merge_lora", .commands = for_convert},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> tuning_options() { return tuning_table; }

}  // namespace tessera::jobs
