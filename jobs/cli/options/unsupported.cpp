// Rows of the option table that users' habits bring along: not built (refused by name, but for values that ask for
// nothing that is missing), or without effect here (accepted, and said).
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// rows read better than columns of fields.
// clang-format off

constexpr Status refused = Status::not_built;
constexpr Status accepted = Status::no_effect;
constexpr const char* off_words = "false|none|no|0";

const OptionSpec no_effect_table[] = {
    // Without effect.
    {.name = "reduce_bucket_size", .type = Type::size, .group = "Accepted without effect", .help = "the unit is the bucket",
     .matches = "DeepSpeed reduce_bucket_size", .status = accepted},
    {.name = "prefetch_bucket_size", .type = Type::size, .group = "Accepted without effect",
     .help = "the unit is the bucket; see forward_prefetch", .matches = "DeepSpeed stage3_prefetch_bucket_size",
     .status = accepted},
    {.name = "optim", .type = Type::choice, .default_value = "adamw", .words = "adamw|adamw_torch|adamw_torch_fused",
     .group = "Accepted without effect", .help = "AdamW is the optimizer", .matches = "HF --optim", .status = accepted},
    {.name = "check_nan", .type = Type::flag, .default_value = "true", .group = "Accepted without effect",
     .help = "non-finite losses and gradients always end the run (exit 5)", .status = accepted},
    {.name = "color", .type = Type::choice, .default_value = "never", .words = "auto|always|never",
     .group = "Accepted without effect", .help = "lines are plain", .status = accepted},
    {.name = "progress", .type = Type::choice, .default_value = "lines", .words = "lines|bar|none",
     .group = "Accepted without effect", .help = "progress is lines; --quiet for none", .status = accepted},
    {.name = "use_cpu", .type = Type::flag, .default_value = "true", .group = "Accepted without effect",
     .help = "this build computes on the CPU", .matches = "accelerate use_cpu", .status = accepted},
    {.name = "report_to", .type = Type::list, .default_value = "jsonl", .words = "jsonl ...", .group = "Not built yet",
     .help = "logging.jsonl is always written; tensorboard, csv, html are not built", .matches = "HF --report_to",
     .status = refused, .fine = "jsonl|none"},

    // Model and data.
    {.name = "model_type", .words = "FAMILY", .group = "Not built yet", .help = "the config names its family",
     .status = refused, .fine = "gpt2|llama|qwen2|qwen3|qwen3_moe|mixtral"},
    {.name = "torch_dtype", .group = "Not built yet", .help = "parameters are float32",
     .status = refused, .fine = "float32|fp32|auto"},
    {.name = "init_scheme", .group = "Not built yet", .help = "initialisation is the family's", .status = refused,
     .fine = "default"},
    {.name = "attn_impl", .group = "Not built yet", .help = "attention is tiled (flash-style)", .status = refused,
     .fine = "auto|flash"},
    {.name = "rope_scaling", .group = "Not built yet", .help = "rotary positions", .status = refused, .fine = "none"},
    {.name = "max_model_len", .type = Type::integer, .group = "Not built yet", .help = "longer positions than the model's",
     .status = refused},
    {.name = "columns", .group = "Not built yet", .help = "renaming of columns", .status = refused},
    {.name = "truncation_strategy", .group = "Not built yet", .help = "a document longer than a sample is split over several",
     .status = refused, .fine = "split"},
    {.name = "template", .group = "Not built yet", .help = "chat templates", .status = refused, .fine = "none"},
    {.name = "system", .group = "Not built yet", .help = "system prompt", .status = refused},
    {.name = "loss_scale", .group = "Not built yet", .help = "every token counts", .status = refused,
     .fine = "default|all"},
    {.name = "dataset_num_proc", .type = Type::integer, .group = "Not built yet", .help = "parallel preprocessing",
     .status = refused, .fine = "1"},
    {.name = "streaming", .type = Type::flag, .default_value = "false", .group = "Not built yet", .help = "streamed data",
     .status = refused, .fine = off_words},
    {.name = "strict", .type = Type::flag, .default_value = "true", .group = "Not built yet",
     .help = "bad data always ends the run", .status = refused, .fine = "true"},

    // Parallel.
    {.name = "offload_params", .aliases = "offload_param", .words = "none|cpu|disk", .group = "Not built yet",
     .help = "parameters in host memory or on disk", .matches = "accelerate fsdp_offload_params; DeepSpeed offload_param",
     .status = refused, .fine = off_words},
    {.name = "offload_optimizer", .words = "none|cpu|disk", .group = "Not built yet",
     .help = "optimizer state in host memory or on disk", .matches = "DeepSpeed offload_optimizer", .status = refused,
     .fine = off_words},

    // Tuning and alignment.
    {.name = "stage", .default_value = "pt", .words = "pt|sft|dpo|kto|rm", .group = "Not built yet",
     .help = "training is on plain text (pt)", .status = refused, .fine = "pt"},
    {.name = "tuner_type", .aliases = "train_type", .default_value = "full", .words = "full|lora", .group = "Not built yet",
     .help = "every parameter is trained (full)", .matches = "ms-swift --tuner_type", .status = refused, .fine = "full"},
    {.name = "lora_rank", .type = Type::integer, .group = "Not built yet", .help = "LoRA", .status = refused},
    {.name = "lora_alpha", .type = Type::real, .group = "Not built yet", .help = "LoRA", .status = refused},
    {.name = "lora_dropout", .type = Type::real, .group = "Not built yet", .help = "LoRA", .status = refused},
    {.name = "target_modules", .type = Type::list, .group = "Not built yet", .help = "LoRA", .status = refused},
    {.name = "target_regex", .group = "Not built yet", .help = "LoRA", .status = refused},
    {.name = "modules_to_save", .type = Type::list, .group = "Not built yet", .help = "LoRA", .status = refused},
    {.name = "use_rslora", .type = Type::flag, .group = "Not built yet", .help = "LoRA", .status = refused,
     .fine = off_words},
    {.name = "lorap_lr_ratio", .type = Type::real, .group = "Not built yet", .help = "LoRA+", .status = refused},
    {.name = "adapters", .type = Type::list, .group = "Not built yet", .help = "adapters to load", .status = refused},
    {.name = "freeze_parameters", .type = Type::list, .group = "Not built yet", .help = "frozen parameters",
     .status = refused},
    {.name = "rlhf_type", .group = "Not built yet", .help = "alignment", .status = refused},
    {.name = "beta", .type = Type::real, .group = "Not built yet", .help = "alignment", .status = refused},
    {.name = "loss_type", .group = "Not built yet", .help = "alignment", .status = refused},
    {.name = "label_smoothing", .type = Type::real, .group = "Not built yet", .help = "smoothed targets", .status = refused,
     .fine = "0|0.0"},
    {.name = "rpo_alpha", .type = Type::real, .group = "Not built yet", .help = "alignment", .status = refused},
    {.name = "ref_model", .group = "Not built yet", .help = "alignment", .status = refused},
    {.name = "precompute_ref_log_probs", .type = Type::flag, .group = "Not built yet", .help = "alignment",
     .status = refused, .fine = off_words},
    {.name = "desirable_weight", .type = Type::real, .group = "Not built yet", .help = "alignment", .status = refused},
    {.name = "undesirable_weight", .type = Type::real, .group = "Not built yet", .help = "alignment", .status = refused},
    {.name = "center_rewards_coefficient", .type = Type::real, .group = "Not built yet", .help = "alignment",
     .status = refused},

    // Run.
    {.name = "log_level", .words = "info", .group = "Not built yet", .help = "levels of logging; see quiet",
     .status = refused, .fine = "info"},
    {.name = "log_ranks", .type = Type::list, .group = "Not built yet", .help = "logs of other ranks", .status = refused,
     .fine = "0"},
    {.name = "profile_memory", .type = Type::flag, .default_value = "false", .group = "Not built yet", .help = "memory over time",
     .status = refused, .fine = off_words},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> no_effect_options() { return no_effect_table; }

}  // namespace tessera::jobs
