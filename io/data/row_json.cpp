// SPDX-License-Identifier: Apache-2.0
// Builds the value from the parser's events; each open object keeps a set of its keys once it has several.

#include "io/data/row_json.hpp"

#include <unordered_set>
#include <vector>

#include "io/data/rows.hpp"

namespace tessera::io {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::uint8_t digits_subtype = 0x49;  // of a binary value that holds the digits of an integer

class ValueBuilder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool is_integer = text.find_first_of(".eE") == text.npos;
    return is_integer ? add(big_integer(text)) : add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Open& at = open_.back();
    auto& members = at.value->get_ref<Json::object_t&>();
    if (members.size() >= max_row_keys)
      throw RowError{strfmt("an object of the row has more than %zu keys", max_row_keys)};
    if (at.has(members, name)) throw RowError{"\"" + name.substr(0, 80) + "\" occurs twice in an object"};
    members.emplace_back(std::move(name), nullptr);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    // A copy by type: the parser's own handler does the same.
    if (const auto* syntax = dynamic_cast<const nlohmann::json::parse_error*>(&error))
      throw nlohmann::json::parse_error(*syntax);
    if (const auto* range = dynamic_cast<const nlohmann::json::out_of_range*>(&error))
      throw nlohmann::json::out_of_range(*range);
    return false;
  }

  Json made;

 private:
  struct Open {
    Json* value;
    std::unordered_set<std::string> keys;  // of an object with several
    bool has(const Json::object_t& members, const std::string& name) {
      constexpr std::size_t few = 16;
      if (members.size() < few) {
        for (const auto& member : members)
          if (member.first == name) return true;
        return false;
      }
      if (keys.empty())
        for (const auto& member : members) keys.insert(member.first);
      return !keys.insert(name).second;
    }
  };

  /// Where the next value goes: the last member of the open object, or a new element of the open array.
  Json& place() {
    if (open_.empty()) return made;
    Json& parent = *open_.back().value;
    if (parent.is_object()) return parent.get_ref<Json::object_t&>().back().second;
    auto& elements = parent.get_ref<Json::array_t&>();
    elements.emplace_back(nullptr);
    return elements.back();
  }
  bool add(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json value) {
    if (open_.size() >= static_cast<std::size_t>(max_row_depth))
      throw RowError{strfmt("the row is nested deeper than %d levels", max_row_depth)};
    Json& at = place();
    at = std::move(value);
    open_.push_back({&at, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Open> open_;  // a parent's storage does not grow while one of its values is open
};

}  // namespace

Json parse_row_json(std::string_view text) {
  ValueBuilder builder;
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.made);
}

std::optional<Json> parse_json_text(const std::string& text) {
  try {
    return parse_row_json(text);
  } catch (const nlohmann::json::exception&) { return std::nullopt; }
}

Json big_integer(std::string_view digits) {
  return Json::binary(Json::binary_t::container_type(digits.begin(), digits.end()), digits_subtype);
}

std::optional<std::string> integer_digits(const Json& value) {
  if (!value.is_binary()) return std::nullopt;
  const auto& bytes = value.get_binary();
  return std::string(bytes.begin(), bytes.end());
}

void append_key(Json& object, std::string key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(std::move(key), std::move(value));
}

}  // namespace tessera::io
