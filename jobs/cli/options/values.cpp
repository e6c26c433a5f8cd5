// SPDX-License-Identifier: Apache-2.0
// Option values from text, and figures as text.
#include "jobs/cli/options/values.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

std::string lower(const std::string& text) {
  std::string result = text;
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// A leading number and what follows it.
bool leading_number(const std::string& text, double& number, std::string& rest) {
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0])) || text[0] == '+') return false;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || !std::isfinite(number)) return false;
  rest.assign(stop, end);
  return true;
}

std::string bound(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? strfmt("%.0f", value) : strfmt("%.9g", value);
}

std::string expected(const OptionSpec& spec, const char* what) {
  std::string text = what;
  if (std::isfinite(spec.min)) text += " of at least " + bound(spec.min);
  if (std::isfinite(spec.max)) text += (std::isfinite(spec.min) ? " and at most " : " of at most ") + bound(spec.max);
  return text;
}

}  // namespace

std::optional<bool> parse_flag(const std::string& text) {
  const std::string word = lower(text);
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(const std::string& text) {
  std::int64_t exact = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, exact);
  if (error == std::errc{} && stop == end) return exact;
  double number = 0;
  std::string rest;
  if (!leading_number(text, number, rest)) return std::nullopt;
  const std::string suffix = lower(rest);
  if (suffix == "k") number *= 1e3;
  else if (suffix == "m") number *= 1e6;
  else if (suffix == "g" || suffix == "b") number *= 1e9;
  else if (!suffix.empty()) return std::nullopt;
  if (number != std::floor(number) || std::abs(number) > 9e15) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::optional<double> parse_real(const std::string& text) {
  double number = 0;
  std::string rest;
  if (!leading_number(text, number, rest) || !rest.empty()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  static constexpr struct {
    const char* suffix;
    double factor;
  } units[] = {{"", 1},
               {"b", 1},
               {"k", 1024.0},
               {"kib", 1024.0},
               {"kb", 1e3},
               {"m", 1048576.0},
               {"mib", 1048576.0},
               {"mb", 1e6},
               {"g", 1073741824.0},
               {"gib", 1073741824.0},
               {"gb", 1e9},
               {"t", 1099511627776.0},
               {"tib", 1099511627776.0},
               {"tb", 1e12}};
  double number = 0;
  std::string rest;
  if (!leading_number(text, number, rest) || number < 0) return std::nullopt;
  rest.erase(0, rest.find_first_not_of(' ') == std::string::npos ? 0 : rest.find_first_not_of(' '));
  for (const auto& unit : units) {
    if (lower(rest) == unit.suffix && number * unit.factor < 9e18)
      return static_cast<std::uint64_t>(std::llround(number * unit.factor));
  }
  return std::nullopt;
}

std::optional<double> parse_duration(const std::string& text) {
  double total = 0;
  std::string rest = text;
  if (rest.empty()) return std::nullopt;
  bool first = true;
  while (!rest.empty()) {
    double number = 0;
    std::string tail;
    if (!leading_number(rest, number, tail) || number < 0) return std::nullopt;
    std::size_t letters = 0;
    while (letters < tail.size() && std::isalpha(static_cast<unsigned char>(tail[letters]))) ++letters;
    const std::string unit = lower(tail.substr(0, letters));
    if (unit.empty() && first && tail.empty()) return number;
    if (unit == "d") total += number * 86400;
    else if (unit == "h") total += number * 3600;
    else if (unit == "m" || unit == "min") total += number * 60;
    else if (unit == "s") total += number;
    else if (unit == "ms") total += number / 1000;
    else return std::nullopt;
    rest = tail.substr(letters);
    first = false;
  }
  return total;
}

std::optional<StepRange> parse_range(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::optional<std::int64_t> first = parse_integer(text.substr(0, colon));
  const std::optional<std::int64_t> last = colon == std::string::npos ? first : parse_integer(text.substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first) return std::nullopt;
  return StepRange{*first, *last};
}

std::string expected_value(const OptionSpec& spec, const std::string& text) {
  switch (spec.type) {
    case Type::flag: return parse_flag(text) ? "" : "true or false";
    case Type::integer: {
      const auto value = parse_integer(text);
      const bool good = value && static_cast<double>(*value) >= spec.min && static_cast<double>(*value) <= spec.max;
      return good ? "" : expected(spec, "an integer");
    }
    case Type::real: {
      const auto value = parse_real(text);
      return value && *value >= spec.min && *value <= spec.max ? "" : expected(spec, "a number");
    }
    case Type::steps: {
      const auto number = parse_integer(text);
      const auto share = parse_real(text);
      const bool good =
          number ? static_cast<double>(*number) >= spec.min : share.has_value() && *share > 0 && *share < 1;
      return good ? "" : expected(spec, "an integer") + ", or a share of all steps between 0 and 1";
    }
    case Type::size: {
      const auto value = parse_size(text);
      const bool positive = std::isfinite(spec.min);
      if (value && (!positive || static_cast<double>(*value) >= spec.min)) return "";
      return positive ? "a size above 0 such as 512MiB or 5GB" : "a size such as 512MiB or 5GB";
    }
    case Type::duration: {
      const auto value = parse_duration(text);
      return value && *value >= (std::isfinite(spec.min) ? spec.min : 0.0) ? "" : "a time above 0 such as 90s or 1h30m";
    }
    case Type::range: return parse_range(text) ? "" : "steps A:B with 1 <= A <= B";
    case Type::list:
      if (std::string_view(spec.name) != "loss_type") return "";
      [[fallthrough]];  // a list of choices
    case Type::choice: {
      for (const std::string& choice : split_words(spec.values, '|')) {
        if (canonical_spelling(choice) == canonical_spelling(text)) return "";
      }
      return alternatives(spec.values);
    }
    case Type::repeated_text:
    case Type::text: return "";
  }
  return "";
}

std::string human_bytes(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 5) bytes /= 1024, ++unit;
  return strfmt(unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
}

namespace {
std::string scaled(double count, std::span<const char* const> units) {
  std::size_t unit = 0;
  while (std::abs(count) >= 1000 && unit + 1 < units.size()) count /= 1000, ++unit;
  return strfmt(unit == 0 ? "%.0f%s" : "%.1f%s", count, units[unit]);
}
}  // namespace

std::string human_count(double count) {
  static constexpr const char* units[] = {"", "k", "M", "B", "T"};
  return scaled(count, units);
}

std::string human_flops(double flops) {
  static constexpr const char* units[] = {"", "k", "M", "G", "T", "P", "E"};
  return scaled(flops, units);
}

std::string human_time(double seconds) {
  const std::int64_t total = std::llround(std::max(0.0, std::min(seconds, 3.6e8)));
  return strfmt("%02ld:%02ld:%02ld", total / 3600, total / 60 % 60, total % 60);
}

}  // namespace tessera::jobs
