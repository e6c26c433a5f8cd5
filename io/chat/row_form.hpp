// SPDX-License-Identifier: Apache-2.0
#pragma once
// The forms of rows that describe a conversation or a text, as ms-swift and TRL write them.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/conversation_row.hpp"

namespace tessera::io {

/// text: {"text"}. messages: a list under "messages", "conversation" or "conversations" (ShareGPT). alpaca:
/// {"instruction", "input", "output"}. query: a query and a response under one of their names ({"query", "response"},
/// {"prompt", "completion"}, {"question", "answer"}, …), with "history" and "system". pair: {"chosen", "rejected"}
/// (pair_row.hpp), which is not a conversation.
enum class RowForm : unsigned char { text, messages, alpaca, query, pair };

/// New names of keys, by the names in the file (--columns).
using Columns = std::map<std::string, std::string>;
/// From {"from": "to"}. Throws Error (usage): not an object of strings.
[[nodiscard]] Columns parse_columns(const std::string& json, const std::string& option);
/// The new name of a column that is left out.
inline constexpr const char* unused_column = "unused";
/// Renames keys of a row. Keys whose new name is unused_column are removed. Throws RowError: a new name that another
/// key of the row has, or gets, too, unless one of the two values is null.
void rename_columns(nlohmann::ordered_json& row, const Columns& columns);
/// An object with the new names of `names` as its keys; of several with one new name, one.
[[nodiscard]] nlohmann::ordered_json named_by(const std::vector<std::string>& names, const Columns& columns);

/// The form of a row, absent if it has none of them.
[[nodiscard]] std::optional<RowForm> form_of(const nlohmann::ordered_json& row);
/// The same. Throws RowError, with the row's keys, if it has none of them.
[[nodiscard]] RowForm require_form(const nlohmann::ordered_json& row);
/// True unless the JSON text of a row shows, without being parsed, that the row's form is text or none.
[[nodiscard]] bool may_be_conversation(std::string_view row);
/// True if a row is read as text (form_of), but has a query and a response, too.
[[nodiscard]] bool is_ambiguous(const nlohmann::ordered_json& row);
/// "messages", …
[[nodiscard]] const char* name_of(RowForm form);
/// The conversation in a row of a form other than text, with the keys of the row that nothing reads. Throws RowError.
[[nodiscard]] ConversationRow read_conversation(nlohmann::ordered_json row, RowForm form);

}  // namespace tessera::io
