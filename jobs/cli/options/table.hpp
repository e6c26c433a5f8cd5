#pragma once
// The one table of options. Parsing, help, man page, completion, docs/cli.md, the JSON schema and args.json come from
// it; nothing else spells an option's name as a fact.

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
  text,           // anything
  repeated_text,  // any number of them: the option is given again for each
  choice,         // one of `words`
  list,           // words by spaces or commas
  size,           // bytes: 512MiB, 5GB, 4096
  duration,       // seconds: 90, 90s, 1h30m
  range,          // steps A:B, both included, 1-based
};
[[nodiscard]] const char* name_of(Type type);

enum class Status : unsigned char {
  built,
  not_built,  // refused by name, but for the values in `fine`
  no_effect,  // accepted for habit's sake; says once that it changes nothing
};

/// Commands that take an option; a set of bits.
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
  for_eval = 2048
};
inline constexpr unsigned for_runs = for_train | for_plan | for_bench | for_config;
inline constexpr unsigned for_inference = for_generate | for_eval;
inline constexpr unsigned for_computing = for_runs | for_inference;
inline constexpr unsigned for_files = for_convert | for_inspect | for_checkpoint;
inline constexpr unsigned for_all = for_computing | for_tokenize | for_doctor | for_completion | for_files;

struct OptionSpec {
  const char* name;          // canonical: lower case, '_'
  const char* aliases = "";  // separated by blanks
  Type type = Type::text;
  const char* default_value = "";  // default, as text; "": none
  const char* words = "";          // choice: "a|b|c"; else what help shows for the value
  const char* group = "";
  const char* help = "";
  const char* matches = "";  // the word of ms-swift, accelerate/FSDP or DeepSpeed that means the same
  unsigned commands = for_runs;
  Status status = Status::built;
  const char* fine = "";  // not_built: values that ask for nothing that is missing, "no|none"
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

/// All options, by group in the order of help.
[[nodiscard]] std::span<const OptionSpec> option_table();
/// The option of that name or alias ('-' = '_'); null if there is none.
[[nodiscard]] const OptionSpec* find_option(std::string_view name);
/// "a|b|c" or "a b c" as words.
[[nodiscard]] std::vector<std::string> split_words(std::string_view words, char separator);
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

/// Up to three of `names` that look most like `word` (edit distance), nearest first; none that is nothing like it.
[[nodiscard]] std::vector<std::string> nearest(const std::string& word, const std::vector<std::string>& names);
/// "Did you mean a, b or c?", or "" if nothing is near.
[[nodiscard]] std::string suggestion(const std::string& word, const std::vector<std::string>& names);
/// Every name and alias that `commands` take.
[[nodiscard]] std::vector<std::string> option_names(unsigned commands = for_all);

}  // namespace tessera::jobs
