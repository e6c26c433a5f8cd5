// SPDX-License-Identifier: Apache-2.0
// Recognizes forms by their keys, and reads them.

#include "io/chat/row_form.hpp"

#include <array>

#include "io/data/rows.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array list_names = {"messages", "conversation", "conversations"};
constexpr std::array query_names = {"query", "prompt", "input", "instruction", "question", "problem"};
constexpr std::array response_names = {"response", "completion", "answer",     "output",  "targets",
                                       "target",   "solution",   "answer_key", "answers", "content"};

template <std::size_t N>
const Json* first_of(const Json& row, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    const auto found = row.find(name);
    if (found != row.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

/// An instruction with an input, or with an output: the query is both, whatever the response's name.
bool is_alpaca(const Json& row) {
  return row.contains("instruction") && (row.contains("input") || row.contains("output"));
}

/// A string under a key; "" if it is absent or null.
std::string text_under(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return {};
  if (!found->is_string()) throw RowError{std::string("\"") + key + "\" is not a string"};
  return found->get<std::string>();
}

void add_history(const Json& row, ConversationRow& conversation) {
  const auto found = row.find("history");
  if (found == row.end() || found->is_null()) return;
  if (!found->is_array()) throw RowError{"\"history\" is not a list"};
  for (const Json& pair : *found) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw RowError{"\"history\" is not a list of [query, response]"};
    conversation.add("user", pair[0].get<std::string>());
    conversation.add("assistant", pair[1].get<std::string>());
  }
}

/// A prompt and a completion that are lists of messages (TRL): one list.
ConversationRow read_lists(const Json& query, const Json& response) {
  Json all = query;
  for (const Json& message : response) all.push_back(message);
  return read_messages(std::move(all));
}

ConversationRow read_alpaca(const Json& row) {
  std::string query = text_under(row, "instruction");
  const std::string input = text_under(row, "input");
  if (!query.empty() && !input.empty()) query += '\n';
  query += input;
  if (query.empty()) throw RowError{"\"instruction\" and \"input\" are empty or missing"};
  const Json* response = first_of(row, response_names);
  if (response == nullptr || !response->is_string()) throw RowError{"the row has no response that is a string"};
  ConversationRow conversation;
  add_history(row, conversation);
  conversation.add("user", std::move(query));
  conversation.add("assistant", response->get<std::string>());
  return conversation;
}

ConversationRow read_query(const Json& row) {
  if (is_alpaca(row)) return read_alpaca(row);
  const Json* query = first_of(row, query_names);
  const Json* response = first_of(row, response_names);
  if (query == nullptr || response == nullptr) throw RowError{"the row has no query, or no response"};
  if (query->is_array() && response->is_array()) return read_lists(*query, *response);
  if (!query->is_string()) throw RowError{"the query is not a string"};
  if (!response->is_string()) throw RowError{"the response is not a string"};
  ConversationRow conversation;
  add_history(row, conversation);
  conversation.add("user", query->get<std::string>());
  conversation.add("assistant", response->get<std::string>());
  return conversation;
}

ConversationRow read_list(Json& row) {
  for (const char* name : list_names)
    if (const auto found = row.find(name); found != row.end() && !found->is_null())
      return read_messages(std::move(*found));
  throw RowError{"the row has no messages"};
}

}  // namespace

Columns parse_columns(const std::string& json, const std::string& option) {
  Columns columns;
  if (json.empty()) return columns;
  const Json parsed = Json::parse(json, nullptr, false);
  bool good = parsed.is_object();
  if (good) {
    for (const auto& [from, to] : parsed.items()) {
      good = good && to.is_string();
      if (good) columns[from] = to.get<std::string>();
    }
  }
  if (!good)
    throw Error(ExitCode::usage, "\"" + json + "\" is not a JSON object of strings", option,
                "Write {\"name in the file\": \"name\"}, for example {\"question\": \"query\"}");
  return columns;
}

void rename_columns(Json& row, const Columns& columns) {
  Json renamed = Json::object();
  for (const auto& [from, to] : columns) {
    const auto found = row.find(from);
    if (found == row.end()) continue;
    renamed[to] = std::move(*found);
    row.erase(found);
  }
  for (auto& [key, value] : renamed.items()) row[key] = std::move(value);
}

std::optional<RowForm> form_of(const Json& row) {
  if (first_of(row, list_names) != nullptr) return RowForm::messages;
  if (is_alpaca(row)) return RowForm::alpaca;
  if (const auto text = row.find("text"); text != row.end() && !text->is_null()) return RowForm::text;
  if (first_of(row, query_names) != nullptr && first_of(row, response_names) != nullptr) return RowForm::query;
  return std::nullopt;
}

bool is_ambiguous(const Json& row) {
  return form_of(row) == RowForm::text && first_of(row, query_names) != nullptr &&
         first_of(row, response_names) != nullptr;
}

const char* name_of(RowForm form) {
  constexpr std::array names = {"text", "messages", "alpaca", "query and response"};
  return names[static_cast<std::size_t>(form)];
}

ConversationRow read_conversation(Json row, RowForm form) {
  require_text_alone(row);
  ConversationRow conversation = form == RowForm::messages ? read_list(row)
                                 : form == RowForm::alpaca ? read_alpaca(row)
                                                           : read_query(row);
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (conversation.role(i) == "user" && conversation.content(i).find("<image>") != std::string::npos)
      throw RowError{strfmt("message %zu has an <image>, and models here read text alone", i + 1)};
  const std::string system = text_under(row, "system");
  if (!system.empty()) conversation.set_system(system);
  if (const auto found = row.find("tools"); found != row.end()) conversation.tools = read_tools(std::move(*found));
  return conversation;
}

}  // namespace tessera::io
