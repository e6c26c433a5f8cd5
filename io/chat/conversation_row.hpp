// SPDX-License-Identifier: Apache-2.0
#pragma once
// The conversation in a row of training data.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::io {

struct ConversationRow {
  /// Objects with "role" (system, developer, user, assistant, tool) and "content", a string, and whatever else the
  /// row's messages have ("tool_calls", "reasoning_content", …).
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  /// By message: the weight in the loss that its row gives it ("loss", "loss_scale"); absent: as --loss_scale says.
  std::vector<std::optional<double>> weights;
  nlohmann::ordered_json tools;  // a list of descriptions; null if there is none

  void add(const char* role, std::string content);
  /// Puts a system message first, unless the conversation has one.
  void set_system(const std::string& content);
  [[nodiscard]] const std::string& role(std::size_t message) const;
  [[nodiscard]] const std::string& content(std::size_t message) const;
};

/// Checks roles, contents and weights of messages, and unifies what tools write differently: ShareGPT's from/value and
/// human/assistant, names of roles, contents in parts, tool calls as text. Throws RowError.
[[nodiscard]] ConversationRow read_messages(nlohmann::ordered_json messages);
/// A list of tools, or a JSON text of one. Throws RowError.
[[nodiscard]] nlohmann::ordered_json read_tools(nlohmann::ordered_json tools);

}  // namespace tessera::io
