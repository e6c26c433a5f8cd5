// SPDX-License-Identifier: Apache-2.0
#pragma once
// ChatFormat of a model's chat template: finds each assistant's text in what the template makes of a conversation.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/chat/answer_spans.hpp"
#include "io/chat/chat_template.hpp"
#include "io/chat/chat_text.hpp"

namespace tessera::io {

/// A template with {% generation %} blocks says itself which text has loss. For others AnswerSearch finds it. An empty
/// think block ("<think>\n\n</think>\n\n") at the beginning of an answer has no loss. Arguments of calls that the row
/// has as a text are given to the template as values, and as the text if it refuses them or prints them as Python's
/// dicts.
class TemplateFormat final : public ChatFormat {
 public:
  /// `system`: put first in conversations without a system message; "" for none. strftime_now is 26 July 2024, so that
  /// a text does not depend on the day.
  TemplateFormat(ChatTemplate chat, LossRule rule, std::string system);
  [[nodiscard]] ChatText render(const ConversationRow& row) const override;
  [[nodiscard]] std::uint64_t hash() const override;

 private:
  [[nodiscard]] jinja::Rendered rendered(const ConversationRow& row, const nlohmann::ordered_json& messages,
                                         bool add_generation_prompt) const;
  [[nodiscard]] std::optional<TurnText> turn_around(const ConversationRow& row, std::size_t answer) const;
  [[nodiscard]] std::vector<LossSpan> answers(const ConversationRow& row, const jinja::Rendered& whole) const;
  [[nodiscard]] bool leaves_out_message(const ConversationRow& row, const std::string& text) const;
  [[nodiscard]] ChatText render_row(const ConversationRow& row) const;

  ChatTemplate chat_;
  LossRule rule_;
  std::string system_;
  std::optional<TurnText> turn_;  // of a short conversation; absent if the template refuses that
};

/// True if `text`, made of `row`, has the arguments of a call as Python prints a dict: the template takes them for a
/// text.
[[nodiscard]] bool prints_python(const ConversationRow& row, const std::string& text);
/// What a template does not read of `row`, of which it made `text`: keys of messages that it does not name and whose
/// absence changes nothing, "name" and "tool_call_id" if their absence from the messages of a role changes nothing, and
/// variables. `render`: the text of the row with other messages; may throw RowError.
[[nodiscard]] std::vector<std::string> unread_keys(
    const jinja::Template& used, const ConversationRow& row, const std::string& text,
    const std::function<std::string(const nlohmann::ordered_json& messages)>& render);

}  // namespace tessera::io
