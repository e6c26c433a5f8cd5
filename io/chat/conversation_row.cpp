// SPDX-License-Identifier: Apache-2.0
// Messages in the spellings of Hugging Face, ShareGPT and ms-swift.

#include "io/chat/conversation_row.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "io/data/rows.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;

struct RoleName {
  const char *written, *role;
};
constexpr std::array<RoleName, 15> role_names = {{{"system", "system"},
                                                  {"developer", "developer"},
                                                  {"user", "user"},
                                                  {"human", "user"},
                                                  {"assistant", "assistant"},
                                                  {"gpt", "assistant"},
                                                  {"bot", "assistant"},
                                                  {"model", "assistant"},
                                                  {"chatgpt", "assistant"},
                                                  {"tool", "tool"},
                                                  {"tool_response", "tool"},
                                                  {"observation", "tool"},
                                                  {"tool_call", "tool_call"},
                                                  {"function_call", "tool_call"},
                                                  {"function", "tool"}}};

std::string role_of(const std::string& written, std::size_t number) {
  for (const RoleName& name : role_names)
    if (written == name.written) return name.role;
  throw RowError{strfmt("message %zu has the role \"%s\": expected system, user, assistant or tool", number,
                        written.substr(0, 40).c_str())};
}

/// Moves the first of `names` that the object has out of it; null if it has none.
Json take(Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    if (found == object.end()) continue;
    Json value = std::move(*found);
    object.erase(found);
    return value;
  }
  return {};
}

/// A string, null, or a list of texts and {"type": "text", "text"}.
std::string text_of_content(const Json& content, std::size_t number) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return {};
  std::string text;
  if (!content.is_array()) throw RowError{strfmt("the content of message %zu is not a string", number)};
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string() &&
                         (!part.contains("type") || part["type"] == "text");
    if (!part.is_string() && !is_text)
      throw RowError{strfmt("the content of message %zu has a part that is not text", number)};
    text += is_text ? part["text"].get<std::string>() : part.get<std::string>();
  }
  return text;
}

std::optional<double> take_weight(Json& message, const std::string& role, std::size_t number) {
  std::optional<double> weight;
  for (const char* key : {"loss", "loss_scale"}) {
    const Json value = take(message, {key});
    if (value.is_null()) continue;
    if (value.is_boolean()) weight = value.get<bool>() ? 1 : 0;
    else if (value.is_number()) weight = value.get<double>();
    if (!weight || !std::isfinite(*weight) || *weight < 0)
      throw RowError{strfmt("\"%s\" of message %zu is not true, false or a number of 0 or more", key, number)};
  }
  if (weight && *weight != 0 && role != "assistant")
    throw RowError{strfmt("message %zu has \"loss\", but its role is %s: only an assistant's text has loss", number,
                          role.c_str())};
  return role == "assistant" ? weight : std::nullopt;
}

/// {"name", "arguments"} as {"type": "function", "function": …}, with arguments that are a JSON text parsed.
Json call_of(Json call, std::size_t number) {
  if (call.is_string()) call = Json::parse(call.get_ref<const std::string&>(), nullptr, false);
  if (!call.is_object()) throw RowError{strfmt("a tool call of message %zu is not a JSON object", number)};
  if (!call.contains("function")) {
    Json function = Json::object();
    for (const char* key : {"name", "arguments"}) function[key] = take(call, {key});
    call["type"] = "function";
    call["function"] = std::move(function);
  }
  Json& function = call["function"];
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
    throw RowError{strfmt("a tool call of message %zu names no function", number)};
  if (function.contains("arguments") && function["arguments"].is_string()) {
    Json parsed = Json::parse(function["arguments"].get_ref<const std::string&>(), nullptr, false);
    if (!parsed.is_discarded()) function["arguments"] = std::move(parsed);
  }
  return call;
}

void read_calls(Json& message, std::size_t number) {
  const auto found = message.find("tool_calls");
  if (found == message.end()) return;
  if (found->is_null() || (found->is_array() && found->empty())) {
    message.erase(found);
    return;
  }
  if (!found->is_array()) throw RowError{strfmt("\"tool_calls\" of message %zu is not a list", number)};
  for (Json& call : *found) call = call_of(std::move(call), number);
}

class RowReader {
 public:
  void add(Json message) {
    ++number_;
    if (!message.is_object()) throw RowError{strfmt("message %zu is not an object", number_)};
    if (!message.contains("role") && !message.contains("from") && add_pair(message)) return;
    const Json role = take(message, {"role", "from"});
    if (!role.is_string()) throw RowError{strfmt("message %zu has no role", number_)};
    const bool has_content = message.contains("content") || message.contains("value");
    Json content = take(message, {"content", "value"});
    put(role_of(role.get<std::string>(), number_), std::move(message), std::move(content), has_content);
  }
  ConversationRow made;

 private:
  /// {"human": …, "assistant": …}: two messages.
  bool add_pair(Json& message) {
    Json user = take(message, {"human", "user"}), answer = take(message, {"assistant", "gpt", "bot"});
    if (!user.is_string() || !answer.is_string()) return false;
    made.add("user", user.get<std::string>());
    put("assistant", std::move(message), std::move(answer), true);
    return true;
  }
  void put(const std::string& role, Json rest, Json content, bool has_content) {
    Json message = Json::object();
    if (role == "tool_call") return add_call(content);
    message["role"] = role;
    const std::optional<double> weight = take_weight(rest, role, number_);
    read_calls(rest, number_);
    if (!has_content && !rest.contains("tool_calls")) throw RowError{strfmt("message %zu has no content", number_)};
    if (content.is_null() && !rest.contains("tool_calls"))
      throw RowError{strfmt("the content of message %zu is null", number_)};
    message["content"] = text_of_content(content, number_);
    for (auto& [key, value] : rest.items()) message[key] = std::move(value);
    made.messages.push_back(std::move(message));
    made.weights.push_back(weight);
  }
  /// A call written as a message: part of the assistant message before it, or one of its own.
  void add_call(const Json& content) {
    if (made.messages.empty() || made.role(made.messages.size() - 1) != "assistant") made.add("assistant", "");
    Json& calls = made.messages.back()["tool_calls"];
    Json parsed = content.is_string() ? Json::parse(content.get_ref<const std::string&>(), nullptr, false) : content;
    if (!parsed.is_array()) parsed = Json::array({std::move(parsed)});
    for (Json& call : parsed) calls.push_back(call_of(std::move(call), number_));
  }
  std::size_t number_ = 0;
};

}  // namespace

void ConversationRow::add(const char* role, std::string content) {
  messages.push_back({{"role", role}, {"content", std::move(content)}});
  weights.emplace_back();
}

void ConversationRow::set_system(const std::string& content) {
  if (!messages.empty() && (role(0) == "system" || role(0) == "developer")) return;
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", content}});
  weights.insert(weights.begin(), std::nullopt);
}

const std::string& ConversationRow::role(std::size_t message) const {
  return messages[message]["role"].get_ref<const std::string&>();
}
const std::string& ConversationRow::content(std::size_t message) const {
  return messages[message]["content"].get_ref<const std::string&>();
}

ConversationRow read_messages(Json messages) {
  if (!messages.is_array()) throw RowError{"the messages are not a list"};
  RowReader reader;
  for (Json& message : messages) reader.add(std::move(message));
  if (reader.made.messages.empty()) throw RowError{"the row has no message"};
  return std::move(reader.made);
}

Json read_tools(Json tools) {
  if (tools.is_string()) {
    if (tools.get_ref<const std::string&>().empty()) return {};
    tools = Json::parse(tools.get_ref<const std::string&>(), nullptr, false);
  }
  if (tools.is_null() || (tools.is_array() && tools.empty())) return {};
  if (!tools.is_array()) throw RowError{"\"tools\" is not a list"};
  for (Json& tool : tools) {
    if (tool.is_string()) tool = Json::parse(tool.get_ref<const std::string&>(), nullptr, false);
    if (!tool.is_object()) throw RowError{"an entry of \"tools\" is not an object"};
  }
  return tools;
}

}  // namespace tessera::io
