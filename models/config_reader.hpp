#pragma once
// ConfigReader: a config.json read strictly: every value has the right type and a sane range, or the error names its
// key.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::models {

// Far above any model there is, and low enough that no product of them overflows.
inline constexpr std::int64_t most_rows = std::int64_t{1} << 24, most_width = std::int64_t{1} << 20,
                              most_layers = 10000;

class ConfigReader {
 public:
  /// Throws Error (usage): not JSON (with line and column), no object, a key twice, longer than 1 MiB.
  ConfigReader(const std::string& text, std::string source);

  /// A whole number in [low, high] under the first of `names` that is there and not null; names that are all there must
  /// agree. Throws Error (usage) naming the key: absent without `fallback`, another type, out of range.
  [[nodiscard]] std::int64_t integer(const std::vector<std::string>& names, std::int64_t low, std::int64_t high,
                                     std::optional<std::int64_t> fallback = {}) const;
  /// A finite number in [low, high].
  [[nodiscard]] double number(const std::string& name, double low, double high, std::optional<double> fallback) const;
  [[nodiscard]] bool boolean(const std::string& name, bool fallback) const;
  [[nodiscard]] std::string text(const std::string& name, std::optional<std::string> fallback = {}) const;
  /// There, and not null.
  [[nodiscard]] bool has(const std::string& name) const;
  /// The object under `name`, whose keys messages call "name.key"; an empty one if it is not there.
  /// Throws Error (usage): no object.
  [[nodiscard]] ConfigReader object(const std::string& name) const;
  /// Whole numbers in [low, high], none if the key is not there. Throws Error (usage): no list of them.
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& name, std::int64_t low, std::int64_t high) const;
  /// The strings of a list; none if the key is not there.
  [[nodiscard]] std::vector<std::string> texts(const std::string& name) const;

  /// Throws Error (usage) if `name` is there with any other value than `allowed` (or null): it would change the
  /// mathematics.
  void only(const std::string& name, const nlohmann::json& allowed, const std::string& why) const;
  /// The error for a value of `name` that cannot be used.
  [[noreturn]] void refuse(const std::string& name, const std::string& what, const std::string& what_to_do = {}) const;

 private:
  ConfigReader(nlohmann::json json, std::string source, std::string prefix)
      : json_(std::move(json)), source_(std::move(source)), prefix_(std::move(prefix)) {}

  nlohmann::json json_;
  std::string source_, prefix_;  // prefix_: "rope_scaling." within that object
};

}  // namespace tessera::models
