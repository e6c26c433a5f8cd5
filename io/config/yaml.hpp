// SPDX-License-Identifier: Apache-2.0
#pragma once
// Configuration files (YAML, or JSON by the name's ending) as a tree with line numbers. Not a general YAML reader:
// features that a table of options does not need are refused by name.

#include <string>
#include <vector>

namespace tessera::io {

struct ConfigEntry;

/// A node of a configuration file. Scalars are text; the option table gives them types.
struct ConfigNode {
  enum class Kind : unsigned char { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;                  // scalar: as written (JSON: numbers and true/false as written too)
  std::vector<ConfigNode> items;     // list
  std::vector<ConfigEntry> entries;  // map, in file order, keys unique
  int line = 0;                      // 1-based; of a map's value: the line of its key
  bool quoted = false;               // scalar in quotes: always a string

  /// The value of `key` in a map; null pointer if there is none.
  [[nodiscard]] const ConfigNode* find(const std::string& key) const;
};

/// A key and its value.
struct ConfigEntry {
  std::string first;
  ConfigNode second;
};

/// Limits, far above any useful configuration.
inline constexpr std::size_t max_config_bytes = 1u << 20;
inline constexpr int max_config_depth = 32;
inline constexpr std::size_t max_config_entries = 4096;  // of one map

/// Reads a configuration file: JSON if its name ends in .json, else YAML 1.1 as libyaml reads it. An empty file is an
/// empty map. Null is an empty plain scalar, `~`, `null`, `Null` or `NULL`. Throws Error (data) if the file cannot be
/// read, else Error (usage) with path:line: a syntax error; anchors, aliases, merge keys, tags, several documents; a
/// duplicate or non-scalar key; a top level that is not a map; too long or too deep.
[[nodiscard]] ConfigNode read_config(const std::string& path);

/// The same for text in memory; `source` is its name in messages.
[[nodiscard]] ConfigNode parse_yaml(const std::string& text, const std::string& source);
[[nodiscard]] ConfigNode parse_json_config(const std::string& text, const std::string& source);

}  // namespace tessera::io
