// SPDX-License-Identifier: Apache-2.0
// Part of the option table: the dtypes in which a run computes and reduces gradients.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec precision_table[] = {
    {.name = "mixed_precision", .type = Type::choice, .default_value = "no", .values = "no|bf16|fp16|fp32",
     .group = "Precision",
     .help = "gather parameters and compute in bf16 or fp16; master weights, optimizer state, norms and losses stay "
             "fp32 (no is fp32). generate and eval hold parameters, keys and values in that type",
     .equivalents = "accelerate mixed_precision", .commands = for_computing},
    {.name = "bf16", .type = Type::flag, .default_value = "false", .group = "Precision",
     .help = "--mixed_precision bf16", .equivalents = "HF --bf16; DeepSpeed bf16.enabled", .commands = for_computing},
    {.name = "fp16", .type = Type::flag, .default_value = "false", .group = "Precision",
     .help = "--mixed_precision fp16", .equivalents = "HF --fp16; DeepSpeed fp16.enabled", .commands = for_computing},
    {.name = "reduce_dtype", .type = Type::choice, .default_value = "fp32", .values = "fp32|bf16|fp16",
     .group = "Precision",
     .help = "dtype in which gradients are sent: fp32, or the dtype of mixed_precision; they are summed in fp32",
     .equivalents = "FSDP MixedPrecision(reduce_dtype); DeepSpeed communication_data_type"},
    {.name = "initial_scale_power", .type = Type::integer, .default_value = "16", .values = "N", .group = "Precision",
     .help = "fp16: the first loss scale is 2^N; when a gradient overflows, the step is skipped and the scale halved",
     .equivalents = "DeepSpeed fp16.initial_scale_power", .min = 0, .max = 32},
    {.name = "loss_scale_window", .type = Type::integer, .default_value = "2000", .values = "N", .group = "Precision",
     .help = "fp16: double the loss scale after N steps without an overflow",
     .equivalents = "DeepSpeed fp16.loss_scale_window", .min = 1},
    {.name = "min_loss_scale", .type = Type::real, .default_value = "1", .values = "2^N", .group = "Precision",
     .help = "fp16: smallest loss scale; 20 overflows in a row at it end the run (exit 5)",
     .equivalents = "DeepSpeed fp16.min_loss_scale", .min = 1.0 / (1 << 24), .max = 4294967296.0},
    {.name = "hysteresis", .type = Type::integer, .default_value = "1", .values = "N", .group = "Precision",
     .help = "fp16: overflows until the loss scale is halved, counted from when it was doubled last; the first N - 1 "
             "only skip their step. A DeepSpeed file without it sets 2, DeepSpeed's default",
     .equivalents = "DeepSpeed fp16.hysteresis", .min = 1},
    {.name = "consecutive_hysteresis", .type = Type::flag, .default_value = "false", .group = "Precision",
     .help = "fp16: count the overflows of --hysteresis from the last step without one",
     .equivalents = "DeepSpeed fp16.consecutive_hysteresis"},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> precision_options() { return precision_table; }

}  // namespace tessera::jobs
