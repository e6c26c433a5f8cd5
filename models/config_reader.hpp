// SPDX-License-Identifier: Apache-2.0
#pragma once
// ConfigReader: strict reading of a config.json: every value has the right type and range, or the error names its key.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera::models {

/// Null, or an empty string, list or object.
[[nodiscard]] bool has_no_value(const nlohmann::json& value);

// Far above any real model, and so low that products of them do not overflow.
inline constexpr std::int64_t max_rows = std::int64_t{1} << 24, max_width = std::int64_t{1} << 20, max_layers = 10000;

class ConfigReader {
 public:
  /// Throws Error (usage): not JSON (with line and column), not an object, a duplicate key, longer than 1 MiB.
  ConfigReader(const std::string& text, std::string source);

  /// An integer in [low, high] under the first of `names` that is present and not null; several present names must
  /// agree. Throws Error (usage) with the key: missing without `fallback`, another type, out of range.
  [[nodiscard]] std::int64_t integer(const std::vector<std::string>& names, std::int64_t low, std::int64_t high,
                                     std::optional<std::int64_t> fallback = {}) const;
  /// A finite number in [low, high].
  [[nodiscard]] double number(const std::string& name, double low, double high, std::optional<double> fallback) const;
  [[nodiscard]] bool boolean(const std::string& name, bool fallback) const;
  [[nodiscard]] std::string text(const std::string& name, std::optional<std::string> fallback = {}) const;
  /// Present and not null.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Present, and null.
  [[nodiscard]] bool is_null(const std::string& name) const;
  /// The object under `name`, whose keys messages call "name.key"; empty if absent. Throws Error (usage) if it is no
  /// object.
  [[nodiscard]] ConfigReader object(const std::string& name) const;
  /// A list of integers in [low, high]; empty if absent. Throws Error (usage) for anything else.
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& name, std::int64_t low, std::int64_t high) const;
  /// A list of finite numbers in [low, high]; empty if absent.
  [[nodiscard]] std::vector<double> numbers(const std::string& name, double low, double high) const;
  /// A list of strings; empty if absent.
  [[nodiscard]] std::vector<std::string> texts(const std::string& name) const;

  [[nodiscard]] const nlohmann::json& json() const { return json_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  /// Whether the value of `name` is that of `other`.
  [[nodiscard]] bool has_value_of(const ConfigReader& other, const std::string& name) const;
  /// The keys with a value that nobody has asked for, sorted.
  [[nodiscard]] std::vector<std::string> unread() const;
  /// The keys that are null and have been asked for, sorted.
  [[nodiscard]] std::vector<std::string> read_nulls() const;

  /// Throws Error (usage) if `name` has another value than `allowed` or null, which the model would compute
  /// differently.
  void require(const std::string& name, const nlohmann::json& allowed, const std::string& why) const;
  /// Throws the error for a value of `name` that cannot be used.
  [[noreturn]] void refuse(const std::string& name, const std::string& what, const std::string& what_to_do = {}) const;

 private:
  ConfigReader(nlohmann::json json, std::string source, std::string prefix,
               std::shared_ptr<std::set<std::string>> asked)
      : json_(std::move(json)), source_(std::move(source)), prefix_(std::move(prefix)), asked_(std::move(asked)) {}
  /// An integer in [low, high]; refuses others with `verb`, "is" or "has", and the value.
  [[nodiscard]] std::int64_t checked_integer(const std::string& name, const std::string& verb,
                                             const nlohmann::json& value, std::int64_t low, std::int64_t high) const;
  /// The same of a finite number.
  [[nodiscard]] double checked_number(const std::string& name, const std::string& verb, const nlohmann::json& value,
                                      double low, double high) const;
  /// The value as a list; empty if it is missing.
  [[nodiscard]] nlohmann::json list(const std::string& name) const;

  nlohmann::json json_;
  std::string source_, prefix_;  // prefix_: "rope_scaling." for the object of that name
  std::shared_ptr<std::set<std::string>> asked_ = std::make_shared<std::set<std::string>>();  // keys, with their prefix
};

}  // namespace tessera::models
