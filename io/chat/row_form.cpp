// SPDX-License-Identifier: Apache-2.0
// Recognizes forms by their keys, and reads them.

#include "io/chat/row_form.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "io/data/row_json.hpp"
#include "io/data/rows.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array list_names = {"messages", "conversation", "conversations"};
constexpr std::array query_names = {"query", "prompt", "input", "instruction", "question", "problem"};
constexpr std::array response_names = {"response", "completion", "answer",     "output",  "targets",
                                       "target",   "solution",   "answer_key", "answers", "content"};

constexpr std::size_t most_keys_named = 20;

template <std::size_t N>
const Json* first_of(const Json& row, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    const auto found = row.find(name);
    if (found != row.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

/// Moves the value that first_of finds out of the row; null if there is none.
template <std::size_t N>
Json take_first(Json& row, const std::array<const char*, N>& names) {
  for (const char* name : names)
    if (const auto found = row.find(name); found != row.end() && !found->is_null()) return take_key(row, {name});
  return {};
}

/// An instruction with an input, or with an output: the query is both, whatever the response's name.
bool is_alpaca(const Json& row) {
  return row.contains("instruction") && (row.contains("input") || row.contains("output"));
}

/// Takes a string under a key; "" if it is absent or null.
std::string take_text(Json& row, const char* key) {
  const Json value = take_key(row, {key});
  if (value.is_null()) return {};
  if (!value.is_string()) throw RowError{std::string("\"") + key + "\" is not a string"};
  return value.get<std::string>();
}

void take_history(Json& row, ConversationRow& conversation) {
  const Json history = take_key(row, {"history"});
  if (history.is_null()) return;
  if (!history.is_array()) throw RowError{"\"history\" is not a list"};
  for (const Json& pair : history) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw RowError{"\"history\" is not a list of [query, response]"};
    conversation.add("user", pair[0].get<std::string>());
    conversation.add("assistant", pair[1].get<std::string>());
  }
}

/// A prompt and a completion that are lists of messages (TRL): one list. A completion that begins with the messages of
/// the prompt is the whole conversation.
ConversationRow read_lists(const Json& query, Json response) {
  if (query.empty()) return read_messages(std::move(response));
  const std::size_t prompt = read_messages(query).messages.size();
  Json all = std::move(response);
  if (!continues(all, query)) all.insert(all.begin(), query.begin(), query.end());
  ConversationRow conversation = read_messages(Json(all));
  const auto own = static_cast<std::ptrdiff_t>(query.size());
  if (all.size() > query.size() &&
      conversation.messages.size() != prompt + read_messages(Json(all.begin() + own, all.end())).messages.size())
    throw RowError{"the completion begins with a tool call that is part of the prompt's last message",
                   "Put both into the prompt, or into the completion"};
  conversation.prompt_messages = prompt;
  return conversation;
}

ConversationRow read_alpaca(Json& row) {
  std::string query = take_text(row, "instruction");
  const std::string input = take_text(row, "input");
  if (!query.empty() && !input.empty()) query += '\n';
  query += input;
  if (query.empty()) throw RowError{"\"instruction\" and \"input\" are empty or missing"};
  Json response = take_key(row, {"output"});
  if (response.is_null()) response = take_first(row, response_names);
  if (!response.is_string()) throw RowError{"the row has no response that is a string"};
  ConversationRow conversation;
  take_history(row, conversation);
  conversation.add("user", std::move(query));
  conversation.add("assistant", response.get<std::string>());
  return conversation;
}

ConversationRow read_query(Json& row) {
  if (is_alpaca(row)) return read_alpaca(row);
  Json query = take_first(row, query_names);
  Json response = take_first(row, response_names);
  if (query.is_null() || response.is_null()) throw RowError{"the row has no query, or no response"};
  if (query.is_array() && response.is_array()) return read_lists(query, std::move(response));
  if (!query.is_string()) throw RowError{"the query is not a string"};
  if (!response.is_string()) throw RowError{"the response is not a string"};
  ConversationRow conversation;
  take_history(row, conversation);
  conversation.add("user", query.get<std::string>());
  conversation.add("assistant", response.get<std::string>());
  return conversation;
}

ConversationRow read_list(Json& row) {
  Json list = take_first(row, list_names);
  if (list.is_null()) throw RowError{"the row has no messages"};
  if (list.is_string())  // of a table, whose cells are texts
    if (std::optional<Json> parsed = parse_json_text(list.get_ref<const std::string&>())) list = std::move(*parsed);
  if (list.is_string() && is_python_literal(list.get_ref<const std::string&>())) throw literal_error("\"messages\"");
  return read_messages(std::move(list));
}

/// "tools", or "functions" as OpenAI wrote them before.
Json take_tools(Json& row) {
  Json tools = read_tools(take_key(row, {"tools"})), functions = read_tools(take_key(row, {"functions"}));
  if (functions.is_null()) return tools;
  if (!tools.is_null()) throw RowError{"the row has \"tools\" and \"functions\""};
  for (Json& function : functions) function = Json{{"type", "function"}, {"function", std::move(function)}};
  return functions;
}

/// "chat_template_kwargs" (TRL): variables of the template, as an object or its JSON text.
Json take_variables(Json& row) {
  Json variables = take_key(row, {"chat_template_kwargs"});
  if (variables.is_string())
    variables = parse_json_text(variables.get_ref<const std::string&>()).value_or(Json::array({0}));
  if (variables.is_null()) return Json::object();
  if (!variables.is_object()) throw RowError{"\"chat_template_kwargs\" is not an object"};
  for (const char* reserved : {"messages", "tools", "add_generation_prompt"})
    if (variables.contains(reserved))
      throw RowError{std::string("\"chat_template_kwargs\" sets \"") + reserved + "\", which is the conversation's"};
  if (const auto documents = variables.find("documents"); documents != variables.end() && !documents->is_null()) {
    const auto is_object = [](const Json& document) { return document.is_object(); };
    if (!documents->is_array() || !std::all_of(documents->begin(), documents->end(), is_object))
      throw RowError{"the \"documents\" of \"chat_template_kwargs\" are not a list of objects"};
  }
  return variables;
}

/// The row's system message goes first, unless the conversation has one: then this one is not read.
void take_system(Json& row, ConversationRow& conversation) {
  const std::string system = take_text(row, "system");
  if (system.empty()) return;
  if (conversation.has_system() && conversation.content(0) != system) conversation.unread.emplace_back("system");
  conversation.set_system(system);
}

/// Two keys of a row that --columns gives one name. `other`: the key that has it from --columns; null if it is the
/// row's own name.
RowError taken_name(const std::string& from, const std::string& to, const std::string* other) {
  const auto quoted = [](const std::string& key) { return "\"" + shortened_key(key) + "\""; };
  const std::string& leave_out = other == nullptr ? to : *other;
  const std::string why =
      other == nullptr ? quoted(from) + " is to be " + quoted(to) + " by --columns, which the row has itself"
                       : quoted(*other) + " and " + quoted(from) + " are both to be " + quoted(to) + " by --columns";
  return {why, "Leave one of the two out: --columns '{" + quoted(leave_out) + ": \"unused\", …}'"};
}

}  // namespace

Columns parse_columns(const std::string& json, const std::string& option) {
  Columns columns;
  if (json.empty()) return columns;
  std::set<std::string> names;
  std::string twice;
  const auto note_names = [&](int depth, Json::parse_event_t event, Json& name) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(name.get<std::string>()).second)
      twice = name.get<std::string>();
    return true;
  };
  const Json parsed = Json::parse(json, note_names, false);
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
  if (!twice.empty())
    throw Error(ExitCode::usage, "\"" + json + "\" names \"" + twice + "\" twice", option, "Keep one of the two");
  return columns;
}

void rename_columns(Json& row, const Columns& columns) {
  struct Renamed {
    const std::string *from, *to;
    Json value;
  };
  std::vector<Renamed> all;  // taken first: names may be exchanged
  for (const auto& [from, to] : columns) {
    const auto found = row.find(from);
    if (found == row.end()) continue;
    if (to != unused_column) all.push_back({&from, &to, std::move(*found)});
    row.erase(found);
  }
  std::map<std::string, const std::string*> origins;  // of new names
  for (auto& [from, to, value] : all) {
    const auto there = row.find(*to);
    if (there == row.end() || there->is_null()) row[*to] = std::move(value);
    else if (value.is_null()) continue;  // a missing value replaces nothing
    else throw taken_name(*from, *to, origins[*to]);
    origins[*to] = from;
  }
}

Json named_by(const std::vector<std::string>& names, const Columns& columns) {
  Json row = Json::object();
  for (const std::string& name : names) {
    const auto found = columns.find(name);
    const std::string& to = found == columns.end() ? name : found->second;
    if (found == columns.end() || to != unused_column) row[to] = name;
  }
  return row;
}

RowForm require_form(const Json& row) {
  if (const std::optional<RowForm> form = form_of(row)) return *form;
  std::string why = "no known form of row; its keys:";
  std::size_t named = 0;
  for (const auto& [key, value] : row.items()) {
    if (++named > most_keys_named) break;
    why += " \"" + key.substr(0, 40) + "\"" + (value.is_null() ? " (null)" : "");
  }
  throw RowError{why + (named > most_keys_named ? " …" : "")};
}

std::optional<RowForm> form_of(const Json& row) {
  if (first_of(row, list_names) != nullptr) return RowForm::messages;
  if (is_alpaca(row)) return RowForm::alpaca;
  if (const auto text = row.find("text"); text != row.end() && !text->is_null()) return RowForm::text;
  if (first_of(row, query_names) != nullptr && first_of(row, response_names) != nullptr) return RowForm::query;
  if (row.contains("chosen") || row.contains("rejected")) return RowForm::pair;
  return std::nullopt;
}

/// By the strings between neighbouring quotes, among which are all keys that are written without escapes.
bool may_be_conversation(std::string_view row) {
  if (row.find("\\u00") != row.npos) return true;  // perhaps a letter of a key
  const auto is_one_of = [](const auto& names, std::string_view key) {
    return std::find(names.begin(), names.end(), key) != names.end();
  };
  bool query = false, response = false;
  for (std::size_t quote = row.find('"'), next = 0; quote != row.npos; quote = next) {
    next = row.find('"', quote + 1);
    const std::string_view key = row.substr(quote + 1, next == row.npos ? 0 : next - quote - 1);
    constexpr std::size_t longest = 16;  // of the names
    if (key.size() > longest) continue;
    if (key == "instruction" || is_one_of(list_names, key)) return true;
    query = query || is_one_of(query_names, key);
    response = response || is_one_of(response_names, key);
  }
  return query && response;
}

bool is_ambiguous(const Json& row) {
  return form_of(row) == RowForm::text && first_of(row, query_names) != nullptr &&
         first_of(row, response_names) != nullptr;
}

const char* name_of(RowForm form) {
  constexpr std::array names = {"text", "messages", "alpaca", "query and response", "chosen and rejected"};
  return names[static_cast<std::size_t>(form)];
}

ConversationRow read_conversation(Json row, RowForm form) {
  if (form == RowForm::pair)
    throw RowError{"the row is a chosen and a rejected answer, and this run learns from single ones",
                   "Use tessera rlhf --rlhf_type dpo, or name one of the two: --columns '{\"chosen\": \"messages\"}'"};
  require_text_alone(row);
  ConversationRow conversation = form == RowForm::messages ? read_list(row)
                                 : form == RowForm::alpaca ? read_alpaca(row)
                                                           : read_query(row);
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (conversation.role(i) == "user" && conversation.content(i).find("<image>") != std::string::npos)
      throw RowError{strfmt("message %zu has an <image>, and models here read text alone", i + 1)};
  take_system(row, conversation);
  conversation.tools = take_tools(row);
  conversation.variables = take_variables(row);
  for (std::string& key : keys_with_values(row, {})) conversation.unread.push_back(std::move(key));
  return conversation;
}

}  // namespace tessera::io
