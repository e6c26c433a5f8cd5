// SPDX-License-Identifier: Apache-2.0
#pragma once
// ChatFormat of a model's chat template: finds each assistant's text in what the template makes of a conversation.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/chat/chat_template.hpp"
#include "io/chat/chat_text.hpp"

namespace tessera::io {

/// A template with {% generation %} blocks says itself which text has loss. For others a second rendering, in which
/// every answer is replaced by a marker, shows the text between answers; an answer is what stands between those texts
/// in the first rendering, from the end of the generation prompt to the end of its turn. An empty think block
/// ("<think>\n\n</think>\n\n") at the beginning of an answer has no loss.
class TemplateFormat final : public ChatFormat {
 public:
  /// `system`: put first in conversations without a system message; "" for none. strftime_now is 26 July 2024, so that
  /// a text does not depend on the day.
  TemplateFormat(ChatTemplate chat, LossRule rule, std::string system);
  [[nodiscard]] ChatText render(const ConversationRow& row) const override;
  [[nodiscard]] std::uint64_t hash() const override;

 private:
  [[nodiscard]] jinja::Rendered rendered(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                         bool add_generation_prompt) const;
  [[nodiscard]] std::optional<std::string> probe(const nlohmann::ordered_json& messages, bool prompt) const;
  [[nodiscard]] std::vector<LossSpan> answers(const ConversationRow& row, const jinja::Rendered& whole) const;
  [[nodiscard]] std::vector<std::string> texts_between(const ConversationRow& row) const;

  ChatTemplate chat_;
  LossRule rule_;
  std::string system_;
  std::string prompt_;   // the generation prompt: "<|im_start|>assistant\n"
  std::string closing_;  // what ends a turn of the assistant at the end of a conversation: "<|im_end|>\n"
};

}  // namespace tessera::io
