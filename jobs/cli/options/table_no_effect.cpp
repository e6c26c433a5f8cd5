// SPDX-License-Identifier: Apache-2.0
// Part of the option table: options of other tools that are accepted and change nothing. A warning says so.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

constexpr const char* no_effect_group = "Accepted without effect";

const OptionSpec no_effect_table[] = {
    {.name = "reduce_bucket_size", .type = Type::size, .group = no_effect_group,
     .help = "gradients are reduced by unit (a transformer block), not by bucket",
     .equivalents = "DeepSpeed reduce_bucket_size", .status = Status::no_effect},
    {.name = "prefetch_bucket_size", .type = Type::size, .group = no_effect_group,
     .help = "parameters are gathered by unit (a transformer block); see forward_prefetch",
     .equivalents = "DeepSpeed stage3_prefetch_bucket_size", .status = Status::no_effect},
    {.name = "check_nan", .type = Type::flag, .default_value = "true", .group = no_effect_group,
     .help = "a loss or gradient that is not finite always ends the run (exit 5)", .status = Status::no_effect},
    {.name = "color", .type = Type::choice, .default_value = "never", .values = "auto|always|never",
     .group = no_effect_group, .help = "output has no colors", .status = Status::no_effect},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> no_effect_options() { return no_effect_table; }

}  // namespace tessera::jobs
