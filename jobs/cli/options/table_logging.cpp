// SPDX-License-Identifier: Apache-2.0
// Part of the option table: what a run prints and records.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec logging_table[] = {
    {.name = "logging_steps", .type = Type::steps, .default_value = "5", .values = "N|SHARE", .group = "Logging",
     .help = "print a step line every N steps, or below 1 after each such share of all steps", .equivalents = "ms-swift --logging_steps", .min = 1},
    {.name = "logging_first_step", .type = Type::flag, .default_value = "true", .group = "Logging",
     .help = "print a step line for step 1 too", .equivalents = "HF --logging_first_step"},
    {.name = "quiet", .type = Type::flag, .default_value = "false", .group = "Logging",
     .help = "print warnings and errors only, as --log_level warning", .commands = for_all},
    {.name = "log_level", .type = Type::choice, .default_value = "info",
     .values = "info|warning|error|debug|critical|passive", .group = "Logging",
     .help = "print everything; warnings and errors; or errors only. debug and passive are info, critical is error",
     .equivalents = "HF --log_level", .commands = for_all},
    {.name = "progress", .type = Type::choice, .default_value = "auto", .values = "auto|bar|lines|none",
     .group = "Logging",
     .help = "of long work: a bar, plain lines, or nothing; auto: a bar where stdout is a terminal and no launcher "
             "started the program, else lines", .commands = for_all},
    {.name = "werror", .type = Type::flag, .default_value = "false", .group = "Logging",
     .help = "a warning before the first step is an error (exit 2)", .commands = for_computing},
    {.name = "report_to", .type = Type::list, .default_value = "tensorboard", .values = "tensorboard|none",
     .group = "Logging", .help = "beside logging.jsonl: event files for TensorBoard; none: no report.html either",
     .equivalents = "HF, ms-swift --report_to"},
    {.name = "logging_dir", .values = "DIR", .group = "Logging",
     .help = "event files are written to DIR [runs/ in the run's directory]", .equivalents = "HF --logging_dir"},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> logging_options() { return logging_table; }

}  // namespace tessera::jobs
