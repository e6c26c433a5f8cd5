// SPDX-License-Identifier: Apache-2.0
// ConfigReader on nlohmann::json.
#include "models/config_reader.hpp"

#include <cmath>

#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

constexpr std::size_t longest_text = std::size_t{1} << 20;
constexpr int deepest_nesting = 64;

/// The value as text, shortened to fit a line.
std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const std::string& text, std::string source) : source_(std::move(source)) {
  if (text.size() > longest_text)
    throw Error(ExitCode::usage, strfmt("config of %zu bytes is not a model's config.json", text.size()), source_);
  std::vector<std::set<std::string>> keys;  // keys of the open objects
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second && twice.empty()) twice = value;
    deep = deep || depth > deepest_nesting;
    return depth <= deepest_nesting;
  };
  try {
    json_ = nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& e) {
    std::string why = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    if (const auto end = why.find("] "); end != std::string::npos) why = why.substr(end + 2);
    throw Error(ExitCode::usage, "model config is not JSON: " + why, source_);
  }
  if (deep) throw Error(ExitCode::usage, strfmt("model config is nested deeper than %d", deepest_nesting), source_);
  if (!json_.is_object()) throw Error(ExitCode::usage, "model config is not a JSON object", source_);
  if (!twice.empty()) refuse(twice, "is there twice", "Keep one");
}

void ConfigReader::refuse(const std::string& name, const std::string& what, const std::string& what_to_do) const {
  throw Error(ExitCode::usage, "model config: \"" + prefix_ + name + "\" " + what, source_, what_to_do);
}

bool has_no_value(const nlohmann::json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

bool ConfigReader::has(const std::string& name) const {
  asked_->insert(prefix_ + name);
  const auto found = json_.find(name);
  return found != json_.end() && !found->is_null();
}

bool ConfigReader::is_null(const std::string& name) const {
  asked_->insert(prefix_ + name);
  const auto found = json_.find(name);
  return found != json_.end() && found->is_null();
}

std::int64_t ConfigReader::integer(const std::vector<std::string>& names, std::int64_t low, std::int64_t high,
                                   std::optional<std::int64_t> fallback) const {
  std::optional<std::int64_t> result;
  for (const std::string& name : names) {
    if (!has(name)) continue;
    const nlohmann::json& value = json_[name];
    const std::int64_t number = checked_integer(name, "is", value, low, high);
    if (result && *result != number)
      refuse(name, strfmt("is %s, but \"%s\" is %ld", shown(value).c_str(), names.front().c_str(), *result));
    result = number;
  }
  if (result) return *result;
  if (!fallback) refuse(names.front(), "is missing", "It has to be a whole number");
  return *fallback;
}

double ConfigReader::number(const std::string& name, double low, double high, std::optional<double> fallback) const {
  if (!has(name) && !fallback) refuse(name, "is missing", "It has to be a number");
  return has(name) ? checked_number(name, "is", json_[name], low, high) : *fallback;
}

double ConfigReader::checked_number(const std::string& name, const std::string& verb, const nlohmann::json& value,
                                    double low, double high) const {
  if (!value.is_number()) refuse(name, verb + " " + shown(value) + ", not a number");
  const auto number = value.get<double>();
  if (!(number >= low && number <= high))
    refuse(name, strfmt("%s %s, not between %g and %g", verb.c_str(), shown(value).c_str(), low, high));
  return number;
}

bool ConfigReader::boolean(const std::string& name, bool fallback) const {
  if (!has(name)) return fallback;
  const nlohmann::json& value = json_[name];
  if (!value.is_boolean()) refuse(name, "is " + shown(value) + ", not true or false");
  return value.get<bool>();
}

std::string ConfigReader::text(const std::string& name, std::optional<std::string> fallback) const {
  if (!has(name)) {
    if (!fallback) refuse(name, "is missing");
    return *fallback;
  }
  const nlohmann::json& value = json_[name];
  if (!value.is_string()) refuse(name, "is " + shown(value) + ", not a string");
  return value.get<std::string>();
}

ConfigReader ConfigReader::object(const std::string& name) const {
  if (!has(name)) return {nlohmann::json::object(), source_, prefix_ + name + ".", asked_};
  if (!json_[name].is_object()) refuse(name, "is " + shown(json_[name]) + ", not an object");
  return {json_[name], source_, prefix_ + name + ".", asked_};
}

std::int64_t ConfigReader::checked_integer(const std::string& name, const std::string& verb,
                                           const nlohmann::json& value, std::int64_t low, std::int64_t high) const {
  if (!value.is_number_integer()) refuse(name, verb + " " + shown(value) + ", not a whole number");
  const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                                               : value.get<std::int64_t>() <= high;
  if (!fits || value.get<std::int64_t>() < low)
    refuse(name, strfmt("%s %s, not between %ld and %ld", verb.c_str(), shown(value).c_str(), low, high));
  return value.get<std::int64_t>();
}

nlohmann::json ConfigReader::list(const std::string& name) const {
  if (!has(name)) return nlohmann::json::array();
  if (!json_[name].is_array()) refuse(name, "is " + shown(json_[name]) + ", not a list");
  return json_[name];
}

std::vector<std::int64_t> ConfigReader::integers(const std::string& name, std::int64_t low, std::int64_t high) const {
  std::vector<std::int64_t> result;
  for (const nlohmann::json& value : list(name)) result.push_back(checked_integer(name, "has", value, low, high));
  return result;
}

std::vector<double> ConfigReader::numbers(const std::string& name, double low, double high) const {
  std::vector<double> result;
  for (const nlohmann::json& value : list(name)) result.push_back(checked_number(name, "has", value, low, high));
  return result;
}

std::vector<std::string> ConfigReader::texts(const std::string& name) const {
  std::vector<std::string> result;
  for (const nlohmann::json& value : list(name)) {
    if (!value.is_string()) refuse(name, "has " + shown(value) + ", not a string");
    result.push_back(value.get<std::string>());
  }
  return result;
}

bool ConfigReader::has_value_of(const ConfigReader& other, const std::string& name) const {
  return json_.contains(name) && other.json_.contains(name) && json_.at(name) == other.json_.at(name);
}

std::vector<std::string> ConfigReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items())
    if (!has_no_value(value) && !asked_->contains(prefix_ + key)) keys.push_back(key);
  return keys;
}

std::vector<std::string> ConfigReader::read_nulls() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items())
    if (value.is_null() && asked_->contains(prefix_ + key)) keys.push_back(key);
  return keys;
}

void ConfigReader::require(const std::string& name, const nlohmann::json& allowed, const std::string& why) const {
  if (!has(name)) return;
  const nlohmann::json& value = json_[name];
  if (value.type() != allowed.type())
    refuse(name, "is " + shown(value) + ", but only " + shown(allowed) + " is supported");
  if (value != allowed)
    refuse(name, "is " + shown(value) + ": " + why + " is not supported (only " + shown(allowed) + ")");
}

}  // namespace tessera::models
