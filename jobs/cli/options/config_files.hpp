#pragma once
// Reads configuration files: options by name, and the keys of accelerate and DeepSpeed.

#include <span>
#include <string>

#include "io/config/yaml.hpp"
#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// What is done with a key of another tool's file.
enum class KeyAction : unsigned char {
  set,         // sets option `target` to the same value
  if_enabled,  // sets option `target` unless the value is false, none or 0; `target` may be an unsupported option
  ignored,     // `target` says why
  block,       // the key's value is a map, with the keys of block `target`
  custom,      // see ConfigFileReader::custom
};

struct ExternalKeySpec {
  const char* block;  // "accelerate", "fsdp_config", "deepspeed", "zero_optimization", …
  const char* keys;   // separated by blanks
  KeyAction action;
  const char* target;
};

/// All known keys (external_config.cpp).
[[nodiscard]] std::span<const ExternalKeySpec> external_key_table();

/// Reads the tree of a configuration file into `options`.
class ConfigFileReader {
 public:
  ConfigFileReader(Options& options, std::string path, int precedence)
      : options_(options), path_(std::move(path)), precedence_(precedence) {}
  /// Reads the top level: options, and the keys and blocks of accelerate and DeepSpeed.
  void read_top(const io::ConfigNode& root);

 private:
  void read_entry(const std::string& name, const io::ConfigNode& child);
  void read_block(const std::string& block, const io::ConfigNode& node, const std::string& prefix);
  void read_env(const io::ConfigNode& node);
  void apply(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  void custom(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  void option(const std::string& name, const io::ConfigNode& node, const std::string& key);
  void note(const io::ConfigNode& node, const std::string& key, const std::string& outcome);
  [[nodiscard]] Source source(const io::ConfigNode& node) const;
  [[nodiscard]] std::string scalar(const io::ConfigNode& node, const std::string& key) const;

  Options& options_;
  std::string path_;
  int precedence_;
};

}  // namespace tessera::jobs
