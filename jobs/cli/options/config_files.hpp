#pragma once
// What the keys of accelerate and DeepSpeed files mean here. Data, and one walker.

#include <span>
#include <string>

#include "io/config/yaml.hpp"
#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// What becomes of a external_keys key.
enum class KeyAction : unsigned char {
  same,        // sets option `target` to the same value
  strategy,    // claims a strategy
  if_enabled,  // nothing if false, none or 0; else sets `target` (an option that is not built refuses it by name)
  ignored,     // `target` says why
  block,       // a map: its keys are in block `target`
  special,     // code in blocks.cpp
};

struct ExternalKeySpec {
  const char* block;  // "accelerate", "fsdp_config", "deepspeed", "zero_optimization", …
  const char* key;
  KeyAction fate;
  const char* target;
};

/// All external_keys keys known.
[[nodiscard]] std::span<const ExternalKeySpec> external_key_table();

/// Walks a configuration tree into `options`.
class ConfigFileReader {
 public:
  ConfigFileReader(Options& options, std::string path, int layer)
      : options_(options), path_(std::move(path)), layer_(layer) {}
  /// The top level: our options, accelerate's and DeepSpeed's keys, and their blocks.
  void read_top(const io::ConfigNode& root);

 private:
  void read_block(const std::string& block, const io::ConfigNode& node, const std::string& prefix);
  void read_env(const io::ConfigNode& node);
  void external_keys(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  void special(const ExternalKeySpec& spec, const io::ConfigNode& node, const std::string& key);
  void option(const std::string& name, const io::ConfigNode& node, const std::string& key);
  void note(const io::ConfigNode& node, const std::string& key, const std::string& verdict);
  [[nodiscard]] Source source(const io::ConfigNode& node) const;
  [[nodiscard]] std::string scalar(const io::ConfigNode& node, const std::string& key) const;

  Options& options_;
  std::string path_;
  int layer_;
};

}  // namespace tessera::jobs
