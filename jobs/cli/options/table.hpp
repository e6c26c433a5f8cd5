// SPDX-License-Identifier: Apache-2.0
#pragma once
// The option table. Parsing, help, the man page, completion, docs/cli.md, the JSON schema and args.json are all made
// from it.

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jobs {

enum class Type : unsigned char {
  flag,           // --x, --x true|True|1|yes|on, --no-x
  integer,        // 64 bits
  real,           // double
  text,           // any text
  repeated_text,  // any text; the option is repeated for more
  choice,         // one of `values`
  list,           // texts separated by blanks or commas
  size,           // bytes: 512MiB, 5GB, 4096
  duration,       // seconds: 90, 90s, 1h30m
  range,          // steps A:B, both included, counted from 1
  steps,          // a number of steps, or a share of all steps between 0 and 1: 500, 0.1
};
[[nodiscard]] const char* name_of(Type type);

enum class Status : unsigned char {
  built,
  no_effect,  // accepted because other tools have it; changes nothing, and a warning says so
};

/// The commands that take an option: a set of bits.
enum CommandBit : unsigned {
  for_train = 1,
  for_plan = 2,
  for_bench = 4,
  for_doctor = 8,
  for_config = 16,
  for_completion = 32,
  for_convert = 64,
  for_inspect = 128,
  for_checkpoint = 256,
  for_tokenize = 512,
  for_generate = 1024,
  for_eval = 2048,
  for_launch = 4096,  // mpirun takes its options: its only own ones are --help and --help-all
  for_report = 8192,
  for_job_script = 16384
};
inline constexpr unsigned for_runs = for_train | for_plan | for_bench | for_config;
inline constexpr unsigned for_inference = for_generate | for_eval;
inline constexpr unsigned for_computing = for_runs | for_inference;
inline constexpr unsigned for_files = for_convert | for_inspect | for_checkpoint;
inline constexpr unsigned for_all =
    for_computing | for_tokenize | for_doctor | for_completion | for_files | for_report | for_job_script;

struct OptionSpec {
  const char* name;          // lower case, with '_'
  const char* aliases = "";  // separated by blanks
  Type type = Type::text;
  const char* default_value = "";  // as text; "": none
  const char* values = "";         // choice: "a|b|c"; otherwise what help shows for the value
  const char* group = "";
  const char* help = "";
  const char* equivalents = "";  // the same option in ms-swift, accelerate, FSDP or DeepSpeed
  unsigned commands = for_runs;
  Status status = Status::built;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

/// All options, in the order of help. Options that are not built are in unsupported.hpp.
[[nodiscard]] std::span<const OptionSpec> option_table();
/// The groups of the table, in the order of help.
[[nodiscard]] std::vector<std::string> option_groups();
/// The option with that name or alias ('-' is '_'); null if there is none.
[[nodiscard]] const OptionSpec* find_option(std::string_view name);
/// Splits "a|b|c" or "a b c"; empty parts are dropped.
[[nodiscard]] std::vector<std::string> split_words(std::string_view words, char separator);
/// Splits a list value at blanks and commas.
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);
/// "a|b|c" as "a, b or c".
[[nodiscard]] std::string alternatives(std::string_view values);
/// Lower case, '-' as '_'.
[[nodiscard]] std::string canonical_spelling(std::string_view name);

struct CommandSpec {
  const char* name;
  CommandBit bit;
  const char* operands;  // "[CONFIG.yaml|json ...]"
  const char* help;
};
[[nodiscard]] std::span<const CommandSpec> command_table();
/// "train, plan, …"
[[nodiscard]] std::string command_names();
[[nodiscard]] const CommandSpec* find_command(std::string_view name);
/// True for the names of stages, "sft", "pt" and "rlhf", and of types of the latter, "dpo", …: each stands for train
/// with that option, or before the other operands of plan for plan with it.
[[nodiscard]] bool is_stage_command(std::string_view name);
/// "rlhf" of a type's name; a stage's own.
[[nodiscard]] std::string stage_of(std::string_view command);

/// Up to three of `names` nearest to `word` by edit distance, nearest first; none if all are far from it.
[[nodiscard]] std::vector<std::string> nearest(const std::string& word, const std::vector<std::string>& names);
/// "Did you mean a, b or c?", or "" if nothing is near.
[[nodiscard]] std::string suggestion(const std::string& word, const std::vector<std::string>& names);
/// Every name and alias that `commands` take.
[[nodiscard]] std::vector<std::string> option_names(unsigned commands = for_all);

}  // namespace tessera::jobs
