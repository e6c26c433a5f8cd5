// SPDX-License-Identifier: Apache-2.0
#pragma once
// The conversation in a row of training data.

#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

/// The arguments of a tool call that the row gives as a JSON text: messages have them parsed.
struct ArgumentsText {
  std::size_t message = 0, call = 0;
  std::string text;
};

struct ConversationRow {
  /// Objects with "role" (system, developer, user, assistant, tool) and "content", a string, and whatever else the
  /// row's messages have ("tool_calls", "reasoning_content", …).
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  /// By message: the weight in the loss that its row gives it ("loss", "loss_scale", "weight"); absent: as --loss_scale
  /// says.
  std::vector<std::optional<double>> weights;
  nlohmann::ordered_json tools;                                         // a list of descriptions; null if none
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // of the template ("chat_template_kwargs")
  std::vector<ArgumentsText> argument_texts;
  /// So many messages are the row's prompt, beside a completion of one or more: their answers have no loss by
  /// --loss_scale default.
  std::size_t prompt_messages = 0;
  /// Keys with a value that nothing reads: "id", "messages[].content[].cache".
  std::vector<std::string> unread;
  /// Keys of messages and calls that are not known, but go to the template, which may read them: "messages[].train".
  std::vector<std::string> unknown;

  void add(const char* role, std::string content);
  /// Puts a system message first, unless the conversation has one.
  void set_system(const std::string& content);
  /// The same conversation with the arguments of calls as the texts that the row has.
  [[nodiscard]] ConversationRow with_argument_texts() const;
  [[nodiscard]] bool has_system() const;
  /// The tool calls of a message; null if it has none.
  [[nodiscard]] const nlohmann::ordered_json* calls(std::size_t message) const;
  [[nodiscard]] const std::string& role(std::size_t message) const;
  [[nodiscard]] const std::string& content(std::size_t message) const;
};

/// Checks roles, contents and weights of messages, and unifies what tools write differently: ShareGPT's from/value and
/// human/assistant, names of roles, contents in parts, tool calls as text, OpenAI's old function_call. Throws RowError.
[[nodiscard]] ConversationRow read_messages(nlohmann::ordered_json messages);
/// Keys of an assistant's message that hold its reasoning.
inline constexpr std::array keys_of_reasoning = {"reasoning_content", "thinking", "reasoning"};
/// Without the blanks, tabs and line ends around it.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// True if two messages have the same values under the same keys, in any order. A null is no value.
[[nodiscard]] bool same_message(const nlohmann::ordered_json& one, const nlohmann::ordered_json& other);
/// True of two lists of messages, if the first begins with all of the second and goes on.
[[nodiscard]] bool continues(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& beginning);
/// A list of tools, or a JSON text of one. Throws RowError.
[[nodiscard]] nlohmann::ordered_json read_tools(nlohmann::ordered_json tools);
/// Moves the first of `names` that the object has out of it; null if it has none.
nlohmann::ordered_json take_key(nlohmann::ordered_json& object, std::initializer_list<const char*> names);

}  // namespace tessera::io
