// SPDX-License-Identifier: Apache-2.0
// Messages in the spellings of Hugging Face, ShareGPT and ms-swift.

#include "io/chat/conversation_row.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "io/data/row_json.hpp"
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

/// The weight that the value of a key gives a message; absent if it is null.
std::optional<double> weight_of(const Json& value, const char* key, std::size_t number) {
  if (value.is_null()) return std::nullopt;
  double weight = -1;
  if (value.is_boolean()) weight = value.get<bool>() ? 1 : 0;
  else if (value.is_number()) weight = value.get<double>();
  if (!std::isfinite(weight) || weight < 0)
    throw RowError{strfmt("\"%s\" of message %zu is not true, false or a number of 0 or more", key, number)};
  return weight;
}

/// "loss" says whether there is loss; "loss_scale", and OpenAI's "weight", how much.
std::optional<double> take_weight(Json& message, const std::string& role, std::size_t number) {
  const auto taken = [&](const char* key) { return weight_of(take_key(message, {key}), key, number); };
  const std::optional<double> loss = taken("loss"), scale = taken("loss_scale"), openai = taken("weight");
  const std::optional<double> weight = scale ? scale : openai ? openai : loss;
  if ((scale && openai && *scale != *openai) || (loss && (*loss == 0) != (*weight == 0)))
    throw RowError{strfmt("the keys of message %zu that weigh its loss contradict each other", number)};
  const bool answers = role == "assistant" || role == "tool_call";
  if (weight && *weight != 0 && !answers)
    throw RowError{strfmt("message %zu has \"%s\", but its role is %s: only an assistant's text has loss", number,
                          scale    ? "loss_scale"
                          : openai ? "weight"
                                   : "loss",
                          role.c_str())};
  return answers ? weight : std::nullopt;
}

class RowReader {
 public:
  void add(Json message) {
    ++number_;
    if (!message.is_object()) throw RowError{strfmt("message %zu is not an object", number_)};
    if (!message.contains("role") && !message.contains("from") && add_pair(message)) return;
    const Json role = take_key(message, {"role", "from"});
    if (!role.is_string()) throw RowError{strfmt("message %zu has no role", number_)};
    const bool has_content = message.contains("content") || message.contains("value");
    Json content = take_key(message, {"content", "value"});
    put(role_of(role.get<std::string>(), number_), std::move(message), content, has_content);
  }
  ConversationRow made;

 private:
  /// {"human": …, "assistant": …}: two messages.
  bool add_pair(Json& message) {
    Json user = take_key(message, {"human", "user"}), answer = take_key(message, {"assistant", "gpt", "bot"});
    if (!user.is_string() || !answer.is_string()) return false;
    made.add("user", user.get<std::string>());
    put("assistant", std::move(message), answer, true);
    return true;
  }
  void put(const std::string& role, Json rest, const Json& content, bool has_content) {
    const std::optional<double> weight = take_weight(rest, role, number_);
    if (role == "tool_call") return add_call(content, rest, weight);
    Json message = Json::object();
    append_key(message, "role", role);
    read_calls(rest);
    if (!has_content && !rest.contains("tool_calls")) throw RowError{strfmt("message %zu has no content", number_)};
    if (content.is_null() && !rest.contains("tool_calls"))
      throw RowError{strfmt("the content of message %zu is null", number_)};
    append_key(message, "content", text_of_content(content));
    require_one_reasoning(rest);
    const bool of_tool = role == "tool";  // its name and its id are the call's
    for (const std::string& key : keys_with_values(rest, {"tool_calls", "reasoning_content", "thinking", "reasoning"}))
      if (!of_tool || (key != "name" && key != "tool_call_id"))
        (key == "content" ? made.unread : made.unknown).push_back("messages[]." + key);
    rest.erase("content");  // of a pair, which has its own
    for (auto& [key, value] : rest.items()) append_key(message, key, std::move(value));
    made.messages.push_back(std::move(message));
    made.weights.push_back(weight);
  }

  /// Under several keys it is the same.
  void require_one_reasoning(const Json& message) const {
    const char* first = nullptr;
    for (const char* key : keys_of_reasoning) {
      const auto found = message.find(key);
      if (found == message.end() || found->is_null()) continue;
      if (const auto* text = found->get_ptr<const std::string*>(); text != nullptr && text->empty()) continue;
      if (first != nullptr && message[first] != *found)
        throw RowError{strfmt("\"%s\" and \"%s\" of message %zu contradict each other", first, key, number_)};
      if (first == nullptr) first = key;
    }
  }

  /// A string, null, or a list of texts and {"type": "text", "text"}.
  std::string text_of_content(const Json& content) {
    if (content.is_string()) return content.get<std::string>();
    if (content.is_null()) return {};
    std::string text;
    if (!content.is_array()) throw RowError{strfmt("the content of message %zu is not a string", number_)};
    for (const Json& part : content) {
      const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string() &&
                           (!part.contains("type") || part["type"] == "text");
      if (!part.is_string() && !is_text)
        throw RowError{strfmt("the content of message %zu has a part that is not text", number_)};
      text += is_text ? part["text"].get<std::string>() : part.get<std::string>();
      if (!is_text) continue;
      for (const std::string& key : keys_with_values(part, {"type", "text"}))
        made.unread.push_back("messages[].content[]." + key);
    }
    return text;
  }

  /// {"name", "arguments"} as {"type": "function", "function": …}, with arguments that are a JSON text parsed. `index`:
  /// of the call in message `message`.
  Json call_of(Json call, std::size_t message, std::size_t index) {
    if (call.is_string()) call = parse_json_text(call.get_ref<const std::string&>()).value_or(Json());
    if (!call.is_object()) throw RowError{strfmt("a tool call of message %zu is not a JSON object", number_)};
    if (!call.contains("function")) {
      Json function = Json::object();
      function["name"] = take_key(call, {"name"});
      function["arguments"] = take_key(call, {"arguments", "parameters"});
      call["type"] = "function";
      call["function"] = std::move(function);
    }
    Json& function = call["function"];
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      throw RowError{strfmt("a tool call of message %zu names no function", number_)};
    for (const std::string& key : keys_with_values(call, {"id", "type", "index", "function"}))
      made.unknown.push_back("messages[].tool_calls[]." + key);
    for (const std::string& key : keys_with_values(function, {"name", "arguments"}))
      made.unknown.push_back("messages[].tool_calls[].function." + key);
    if (!function.contains("arguments") || !function["arguments"].is_string()) return call;
    std::string text = function["arguments"].get<std::string>();
    std::optional<Json> parsed = parse_json_text(text);
    if (!parsed) return call;
    function["arguments"] = std::move(*parsed);
    made.argument_texts.push_back({message, index, std::move(text)});
    return call;
  }

  void read_calls(Json& message) {
    Json calls = take_key(message, {"tool_calls"}), old = take_key(message, {"function_call"});
    if (!calls.is_null() && !calls.is_array())
      throw RowError{strfmt("\"tool_calls\" of message %zu is not a list", number_)};
    if (!old.is_null() && !calls.empty())
      throw RowError{strfmt("message %zu has \"tool_calls\" and \"function_call\"", number_)};
    if (!old.is_null()) calls = Json::array({std::move(old)});
    if (calls.empty()) return;
    for (std::size_t i = 0; i < calls.size(); ++i) calls[i] = call_of(std::move(calls[i]), made.messages.size(), i);
    append_key(message, "tool_calls", std::move(calls));
  }

  /// A call written as a message: part of the assistant message before it, or one of its own. Its weight must be that
  /// of the message it becomes part of.
  void add_call(const Json& content, const Json& rest, const std::optional<double>& weight) {
    for (const std::string& key : keys_with_values(rest, {})) made.unread.push_back("messages[]." + key);
    if (made.messages.empty() || made.role(made.messages.size() - 1) != "assistant") {
      made.add("assistant", "");
      made.weights.back() = weight;
    } else if (made.weights.back() != weight) {
      throw RowError{
          strfmt("the tool call in message %zu and the assistant's message before it are one answer, and "
                 "their \"loss\" differs",
                 number_)};
    }
    const std::size_t message = made.messages.size() - 1;
    Json& calls = made.messages.back()["tool_calls"];
    Json parsed =
        content.is_string() ? parse_json_text(content.get_ref<const std::string&>()).value_or(Json()) : content;
    if (!parsed.is_array()) parsed = Json::array({std::move(parsed)});
    for (Json& call : parsed) calls.push_back(call_of(std::move(call), message, calls.size()));
  }
  std::size_t number_ = 0;
};

}  // namespace

void ConversationRow::add(const char* role, std::string content) {
  messages.push_back({{"role", role}, {"content", std::move(content)}});
  weights.emplace_back();
}

bool ConversationRow::has_system() const {
  return !messages.empty() && (role(0) == "system" || role(0) == "developer");
}

void ConversationRow::set_system(const std::string& content) {
  if (has_system()) return;
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", content}});
  weights.insert(weights.begin(), std::nullopt);
  for (ArgumentsText& arguments : argument_texts) ++arguments.message;
  if (prompt_messages > 0) ++prompt_messages;
}

ConversationRow ConversationRow::with_argument_texts() const {
  ConversationRow row = *this;
  for (const ArgumentsText& one : argument_texts)
    row.messages[one.message]["tool_calls"][one.call]["function"]["arguments"] = one.text;
  row.argument_texts.clear();
  return row;
}

const Json* ConversationRow::calls(std::size_t message) const {
  const auto found = messages[message].find("tool_calls");
  return found == messages[message].end() ? nullptr : &*found;
}

const std::string& ConversationRow::role(std::size_t message) const {
  return messages[message]["role"].get_ref<const std::string&>();
}
const std::string& ConversationRow::content(std::size_t message) const {
  return messages[message]["content"].get_ref<const std::string&>();
}

Json take_key(Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    if (found == object.end()) continue;
    Json value = std::move(*found);
    object.erase(found);
    return value;
  }
  return {};
}

ConversationRow read_messages(Json messages) {
  if (!messages.is_array()) throw RowError{"the messages are not a list"};
  RowReader reader;
  for (Json& message : messages) reader.add(std::move(message));
  if (reader.made.messages.empty()) throw RowError{"the row has no message"};
  return std::move(reader.made);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

bool same_message(const Json& one, const Json& other) {
  if (one == other) return true;
  const auto unordered = [](const Json& message) {
    nlohmann::json kept = nlohmann::json::object();
    for (const auto& [key, value] : message.items())
      if (!value.is_null()) kept[key] = value;
    return kept;
  };
  return one.is_object() && other.is_object() && unordered(one) == unordered(other);
}

bool continues(const Json& messages, const Json& beginning) {
  return messages.is_array() && beginning.is_array() && messages.size() > beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), messages.begin(), same_message);
}

Json read_tools(Json tools) {
  if (tools.is_string()) {
    if (tools.get_ref<const std::string&>().empty()) return {};
    std::optional<Json> parsed = parse_json_text(tools.get_ref<const std::string&>());
    if (!parsed && is_python_literal(tools.get_ref<const std::string&>())) throw literal_error("\"tools\"");
    if (!parsed) throw RowError{"\"tools\" is a text that is not JSON"};
    tools = std::move(*parsed);
  }
  if (tools.is_null() || (tools.is_array() && tools.empty())) return {};
  if (!tools.is_array()) throw RowError{"\"tools\" is not a list"};
  for (Json& tool : tools) {
    if (tool.is_string()) tool = parse_json_text(tool.get_ref<const std::string&>()).value_or(Json());
    if (!tool.is_object()) throw RowError{"an entry of \"tools\" is not an object"};
  }
  return tools;
}

}  // namespace tessera::io
