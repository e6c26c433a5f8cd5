#pragma once
// Options: the values of a run, each with its source. Layers, later wins:
//   defaults < --preset < configuration files, left to right < TESSERA_* environment < command line.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/config/yaml.hpp"
#include "jobs/cli/options/table.hpp"
#include "jobs/cli/options/values.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

/// Layers as numbers; configuration files take layer::file, layer::file + 1, …
namespace layer {
inline constexpr int default_value = 0, preset = 1, file = 2, environment = 1000, command_line = 1001;
}  // namespace layer

struct Source {
  int layer = layer::default_value;
  std::string text = "default";  // "command line", "run.yaml:3", "environment TESSERA_SEED", "preset zero3", "default"
};

struct Value {
  std::vector<std::string> items;  // one but for lists; none: not set
  Source source;
};

/// A key of another tool's configuration and what became of it.
struct ExternalKey {
  std::string where, key;  // "accelerate.yaml:7", "fsdp_config.fsdp_sharding_strategy"
  std::string verdict;     // "used", "mapped to sharding_strategy FULL_SHARD", "ignored: the launcher decides"
};

class Options {
 public:
  Options();

  /// True if a layer above the defaults gave it.
  [[nodiscard]] bool given(const char* name) const;
  /// True if there is a value, given or default.
  [[nodiscard]] bool has(const char* name) const { return !value(name).items.empty(); }
  // A value of the option's type; asking for one that has none, or by another type, is a bug.
  [[nodiscard]] bool flag(const char* name) const;
  [[nodiscard]] std::int64_t integer(const char* name) const;
  [[nodiscard]] double real(const char* name) const;
  [[nodiscard]] std::string text(const char* name) const;  // "" if none; choices in the table's spelling
  [[nodiscard]] const std::vector<std::string>& list(const char* name) const { return value(name).items; }
  [[nodiscard]] std::uint64_t bytes(const char* name) const;
  [[nodiscard]] double seconds(const char* name) const;
  [[nodiscard]] std::optional<std::int64_t> optional_integer(const char* name) const;
  [[nodiscard]] const Value& value(const char* name) const;

  /// An Error (usage) about this option's value: "WHAT [--name: source]. TO DO".
  [[nodiscard]] Error refuse(const char* name, const std::string& what, const std::string& to_do) const;

  /// Sets one option from a layer: checks the value's type and whether it is built; a lower layer never replaces a
  /// higher one. The words of other tools (fsdp, deepspeed, …) become claims on sharding_strategy. Throws Error
  /// (usage).
  void assign(const std::string& name, std::vector<std::string> items, const Source& source);
  /// Reads a configuration file into layer::file + index, other tools' blocks included (blocks.cpp).
  void read_file(const std::string& path);
  void read_tree(const io::ConfigNode& root, const std::string& path);
  /// Variables TESSERA_<NAME>; what is no option is refused.
  void read_environment(char** environment);
  /// The strategy from all claims of the highest layer that has one; contradictions are refused. Call once, last.
  void resolve_strategy();

  /// JSON object: every option's value and source.
  [[nodiscard]] std::string json() const;

  unsigned commands = for_all;              // of the command at hand
  std::vector<ExternalKey> external_keys;   // keys of other tools met in files
  std::vector<std::string> without_effect;  // options that were accepted and change nothing, with their source

 private:
  struct Claim {
    std::string word, option;  // canonical strategy word; what claimed it
    Source source;
  };
  friend class ConfigFileReader;
  void claim(const std::string& option, const std::string& given_word, const Source& source);
  void check(const OptionSpec& spec, const std::vector<std::string>& items, const Source& source);
  /// Handles options that stand for others; true if `spec` is one.
  bool expand(const OptionSpec& spec, const std::string& word, const Source& source);

  std::map<std::string, Value, std::less<>> values_;
  std::vector<Claim> claims_;
  int files_ = 0;
};

/// What a command line asks for.
struct Invocation {
  std::string command;                // "" if none was given
  std::vector<std::string> operands;  // "gemm"; configuration files are read, not kept
  Options options;
};

/// Parses and resolves everything. argv as main has it. Throws Error (usage, data).
[[nodiscard]] Invocation parse_command_line(const std::vector<std::string>& arguments, char** environment);

/// argv to canonical tokens: "--name=value", each value of a list its own token; what is no option stays as it is.
/// Aliases,
/// '-', booleans with and without a word, "--no-x", lists are resolved. Throws Error (usage): unknown names, missing
/// values.
[[nodiscard]] std::vector<std::string> canonical_arguments(const std::vector<std::string>& arguments,
                                                           unsigned commands);

/// Canonical strategy word ("zero3", "hybrid_shard", …) of any tool's spelling; "" if it is none.
[[nodiscard]] std::string canonical_strategy(const std::string& word);

}  // namespace tessera::jobs
