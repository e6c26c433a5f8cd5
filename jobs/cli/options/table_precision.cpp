// Rows of the option table: in which types a run computes and reduces.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// rows read better than columns of fields.
// clang-format off

const OptionSpec precision_table[] = {
    {.name = "mixed_precision", .type = Type::choice, .default_value = "no", .words = "no|bf16|fp16|fp32", .group = "Precision",
     .help = "gather and compute in bf16 or fp16; masters, optimizer state, norms and losses stay fp32 (no = fp32)",
     .matches = "accelerate mixed_precision"},
    {.name = "bf16", .type = Type::flag, .default_value = "false", .group = "Precision", .help = "mixed_precision bf16",
     .matches = "HF --bf16; DeepSpeed bf16.enabled"},
    {.name = "fp16", .type = Type::flag, .default_value = "false", .group = "Precision", .help = "mixed_precision fp16",
     .matches = "HF --fp16; DeepSpeed fp16.enabled"},
    {.name = "reduce_dtype", .type = Type::choice, .default_value = "fp32", .words = "fp32|bf16|fp16", .group = "Precision",
     .help = "gradients travel in fp32, or in the type that mixed_precision computes in; they are summed in fp32",
     .matches = "FSDP MixedPrecision(reduce_dtype); DeepSpeed communication_data_type"},
    {.name = "initial_scale_power", .type = Type::integer, .default_value = "16", .words = "N", .group = "Precision",
     .help = "fp16: the loss scale starts at 2^N; it halves, and the step is skipped, when a gradient overflows",
     .matches = "DeepSpeed fp16.initial_scale_power", .least = 0, .most = 32},
    {.name = "loss_scale_window", .type = Type::integer, .default_value = "2000", .words = "N", .group = "Precision",
     .help = "fp16: the loss scale doubles after N steps without an overflow", .matches = "DeepSpeed fp16.loss_scale_window",
     .least = 1},
    {.name = "min_loss_scale", .type = Type::real, .default_value = "1", .words = "2^N", .group = "Precision",
     .help = "fp16: the loss scale halves no further; 20 overflows in a row there end the run (exit 5)",
     .matches = "DeepSpeed fp16.min_loss_scale", .least = 1.0 / (1 << 24), .most = 4294967296.0},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> precision_options() { return precision_table; }

}  // namespace tessera::jobs
