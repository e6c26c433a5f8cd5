// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads configuration files: options by name, and the keys of accelerate and DeepSpeed.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/config/yaml.hpp"
#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// What is done with a key of another tool's file. "auto", null and empty blocks leave the default, whatever the
/// action.
enum class KeyAction : unsigned char {
  set,         // sets option `target` to the same value
  if_enabled,  // sets option `target` unless the value is false, none or 0; `target` may be an unsupported option
  harmless,    // changes nothing; `target` says why no value of it can change losses, memory or files
  only,        // harmless with a value of `accepted`, for the reason `target`; refused with others: use `instead`
  switched,    // refused where it is on (itself, or an `enabled` below it), with `instead`; otherwise harmless. A block
               // without any `enabled` is off if `target` is `by_enabled`, and on otherwise
  block,       // the key's value is a map, with the keys of block `target`
  custom,      // see ConfigFileReader::custom
};

/// Of blocks that DeepSpeed leaves off unless their `enabled` is true.
inline constexpr const char* by_enabled = "off: the default of enabled is false";

struct ExternalKeySpec {
  const char* block;  // "accelerate", "fsdp_config", "deepspeed", "zero_optimization", …
  const char* keys;   // separated by blanks; a last '*' stands for any end of a key
  KeyAction action;
  const char* target = "";
  const char* accepted = "";  // "false|0"; numbers are compared as numbers
  const char* instead = "";   // what to use: "Use --zero_stage 3"
};

/// The keys of accelerate's files (accelerate_keys.cpp) and of DeepSpeed's (deepspeed_keys.cpp).
[[nodiscard]] std::span<const ExternalKeySpec> accelerate_key_table();
[[nodiscard]] std::span<const ExternalKeySpec> deepspeed_key_table();
/// The row of a key of a block; null if there is none.
[[nodiscard]] const ExternalKeySpec* find_external_key(const std::string& block, const std::string& key);
/// The keys of a block, for suggestions.
[[nodiscard]] std::vector<std::string> external_keys_of(const std::string& block);

/// Reads the tree of a configuration file into `options`. What is refused is kept for Options::resolve.
class ConfigFileReader {
 public:
  /// `lines`: sources have line numbers; false for the text of an option.
  ConfigFileReader(Options& options, std::string path, int precedence, bool lines = true)
      : options_(options), path_(std::move(path)), precedence_(precedence), lines_(lines) {}
  /// Reads the top level: options, and the keys and blocks of accelerate and DeepSpeed.
  void read_top(const io::ConfigNode& root);
  /// Reads the keys of a block; `prefix` is written before their names.
  void read_block(const std::string& block, const io::ConfigNode& node, const std::string& prefix);

 private:
  using Outcome = ExternalKey::Outcome;
  void read_entry(const std::string& name, const io::ConfigNode& child);
  void read_env(const io::ConfigNode& node);
  /// A key of a block: refuses an unknown one.
  void apply_of(const std::string& block, const std::string& name, const io::ConfigNode& node, const std::string& key);
  void apply(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  void set_target(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  void only(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  void switched(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  /// Keys whose values need arithmetic or several options (config_values.cpp).
  void custom(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  bool custom_accelerate(const std::string& what, const io::ConfigNode& node, const std::string& key);
  bool custom_deepspeed(const std::string& what, const io::ConfigNode& node, const std::string& key);
  void parallelism_config(const io::ConfigNode& node, const std::string& key);
  void zero_optimization(const io::ConfigNode& node, const std::string& key);
  void precision_block(const std::string& block, const io::ConfigNode& node, const std::string& key);
  void scheduler(const io::ConfigNode& node, const std::string& key);
  void betas(const io::ConfigNode& node, const std::string& key);
  void monitor(const io::ConfigNode& node, const std::string& key);
  void option(const std::string& name, const io::ConfigNode& node, const std::string& key);
  /// DeepSpeed's default of a key that its block has not, at the lowest precedence.
  void default_of(const io::ConfigNode& at, const std::string& key, const char* option_name, const char* value);
  void set(const char* option_name, const std::string& value, const io::ConfigNode& node, const std::string& key);
  /// Runs `read`; a refusal is kept for resolve(), and noted.
  void keep_refusals(const io::ConfigNode& node, const std::string& key, const std::function<void()>& read);
  void note(const io::ConfigNode& node, const std::string& key, Outcome outcome, const std::string& text = "",
            const std::string& option_name = "");
  [[noreturn]] void refuse(const io::ConfigNode& node, const std::string& what, const std::string& to_do = "") const;
  [[nodiscard]] Source source(const io::ConfigNode& node) const;
  [[nodiscard]] std::string scalar(const io::ConfigNode& node, const std::string& key) const;

  Options& options_;
  std::string path_;
  int precedence_;
  bool lines_;
};

/// True for false, none, no, off and 0.
[[nodiscard]] bool is_off(const std::string& text);
/// True if a value is on, or an `enabled` below it; `without` for a block with keys but without any `enabled`.
[[nodiscard]] bool is_enabled(const io::ConfigNode& node, bool without);

}  // namespace tessera::jobs
