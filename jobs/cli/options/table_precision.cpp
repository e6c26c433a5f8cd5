// SPDX-License-Identifier: Apache-2.0
// Part of the option table: the dtypes in which a run computes and reduces gradients.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec precision_table[] = {
    {.name = "mixed_precision", .type = Type::choice, .default_value = "auto", .values = "auto|no|bf16|fp16|fp32",
     .group = "Precision",
     .help = "gather parameters and compute in bf16 or fp16; master weights, optimizer state, norms and losses stay "
             "fp32 (no is fp32). generate and eval hold parameters, keys and values in that type. auto: in bf16 where "
             "the model's weights are bf16 or fp16 and the GPU or CPU has bf16 instructions, and from scratch on GPUs; "
             "else in fp32; a resumed run as its checkpoint's; bench in fp32",
     .equivalents = "accelerate mixed_precision", .commands = for_computing},
    {.name = "bf16", .type = Type::flag, .default_value = "false", .group = "Precision",
     .help = "--mixed_precision bf16", .equivalents = "HF --bf16; DeepSpeed bf16.enabled", .commands = for_computing},
    {.name = "fp16", .type = Type::flag, .default_value = "false", .group = "Precision",
     .help = "--mixed_precision fp16", .equivalents = "HF --fp16; DeepSpeed fp16.enabled", .commands = for_computing},
    {.name = "reduce_dtype", .type = Type::choice, .default_value = "fp32", .values = "fp32|bf16|fp16|int8",
     .group = "Precision",
     .help = "dtype in which gradients are sent: fp32, the dtype of mixed_precision, or int8 in blocks of 256 with a "
             "scale (see compress_axes); they are summed in fp32",
     .equivalents = "FSDP MixedPrecision(reduce_dtype); DeepSpeed communication_data_type, zero_quantized_gradients"},
    {.name = "gather_dtype", .type = Type::choice, .default_value = "compute", .values = "compute|int8|int8_frozen",
     .group = "Precision",
     .help = "dtype in which parameters are gathered: that of mixed_precision, or int8 in blocks of 256 with a scale "
             "(see compress_axes); int8_frozen: those of frozen units alone. Master weights stay fp32",
     .equivalents = "DeepSpeed zero_quantized_weights, zero_quantized_nontrainable_weights"},
    {.name = "compress_axes", .type = Type::choice, .default_value = "across_nodes", .values = "across_nodes|all",
     .group = "Precision",
     .help = "groups that send int8 where reduce_dtype or gather_dtype asks for it: those whose ranks are on several "
             "nodes (in HYBRID_SHARD the replicas), or all"},
    {.name = "error_feedback", .type = Type::flag, .default_value = "true", .group = "Precision",
     .help = "reduce_dtype int8: each rank keeps what its int8 gradients lack and adds it to the next ones (4 bytes "
             "for each number that it sends, and 4 for each of its shard)"},
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
