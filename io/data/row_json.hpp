// SPDX-License-Identifier: Apache-2.0
#pragma once
// JSON of rows: what nlohmann's parser takes, in time linear in the text, with limits and without loss of digits.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::io {

/// Objects of a row are nested at most so deep, and each has at most so many keys.
constexpr int max_row_depth = 64;
constexpr std::size_t max_row_keys = 10000;

/// Parses a JSON text. An integer beyond 64 bits is kept as its digits (integer_digits). Throws
/// nlohmann::json::exception: not JSON, or a number beyond the range of doubles; RowError (rows.hpp): a key twice in an
/// object, more than max_row_keys in one, deeper than max_row_depth.
[[nodiscard]] nlohmann::ordered_json parse_row_json(std::string_view text);
/// The value of a JSON text in a string of a row (tools, arguments of a call); absent if it is not JSON. Throws
/// RowError as parse_row_json.
[[nodiscard]] std::optional<nlohmann::ordered_json> parse_json_text(const std::string& text);

/// An integer beyond 64 bits as a JSON value, by its digits ("-9223372036854775809").
[[nodiscard]] nlohmann::ordered_json big_integer(std::string_view digits);
/// The digits of such a value; absent for other values.
[[nodiscard]] std::optional<std::string> integer_digits(const nlohmann::ordered_json& value);

/// Appends a key, which the object must not have, in constant time.
void append_key(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value);

}  // namespace tessera::io
