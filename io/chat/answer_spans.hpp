// SPDX-License-Identifier: Apache-2.0
#pragma once
// The places of answers in the text that a chat template without {% generation %} makes of a conversation.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/chat_text.hpp"

namespace tessera::io {

/// What a template prints around an answer.
struct TurnText {
  std::string prompt;   // the generation prompt: "<|im_start|>assistant\n"
  std::string closing;  // what ends the assistant's turn at the end of a conversation: "<|im_end|>\n"
  std::string trailer;  // what begins another turn behind every conversation, asked for or not (Command R); mostly ""
};

/// The text of a conversation with these messages, and otherwise as the row's. Throws RowError: the template refuses
/// it.
using RenderMessages = std::function<std::string(const nlohmann::ordered_json& messages, bool add_generation_prompt)>;

/// Finds the answers of `row` in `text`. A second rendering, in which every answer is replaced by a marker, shows the
/// text between answers; an answer is what stands between those texts, from the end of the generation prompt to the end
/// of its turn. Where that finds nothing, answers keep their reasoning beside the marker. Where the template refuses a
/// conversation without its tool calls, or prints results only with calls, messages with calls stay, and their places
/// are those at which renderings of the conversation's beginnings end, without and with the message.
class AnswerSearch {
 public:
  AnswerSearch(const ConversationRow& row, std::string_view text, TurnText turn, RenderMessages render);
  /// One span for each assistant message, in order. Throws RowError: an answer cannot be found.
  [[nodiscard]] std::vector<LossSpan> spans() const;

  /// An assistant's message by which a template shows what it prints around answers.
  [[nodiscard]] static std::string example();

 private:
  /// What a message whose text is replaced by a marker keeps.
  struct Kept {
    bool calls = false;      // messages with calls are not replaced
    bool reasoning = false;  // what the message has of it
  };
  [[nodiscard]] std::vector<LossSpan> search(Kept kept) const;
  void require_results() const;
  [[nodiscard]] nlohmann::ordered_json marked_messages(const std::vector<std::size_t>& marked, Kept kept) const;
  [[nodiscard]] std::size_t end_of_calls(const nlohmann::ordered_json& messages, std::size_t from, std::size_t to,
                                         std::string_view text) const;
  [[nodiscard]] std::vector<std::string> texts_before(const std::vector<std::size_t>& marked, Kept kept) const;
  [[nodiscard]] std::vector<LossSpan> match(const std::vector<std::size_t>& marked, Kept kept) const;
  [[nodiscard]] LossSpan find_call(std::size_t message, std::size_t from, std::size_t to) const;
  [[nodiscard]] std::size_t turn_end(std::string_view rest) const;

  const ConversationRow& row_;
  std::string_view text_;
  TurnText turn_;
  RenderMessages render_;
};

/// The length of the empty think block ("<think>\n\n</think>\n\n") that an answer begins with; 0 without one. The
/// generation prompt may have its beginning (Qwen3.5's ends in "<think>\n").
[[nodiscard]] std::size_t empty_think(std::string_view answer);
/// The reasoning of an assistant's message: under one of its keys, or before </think> in its content.
[[nodiscard]] std::string_view reasoning_of(const ConversationRow& row, std::size_t message);
/// The token in brackets that a text begins with; empty if it begins with another character.
[[nodiscard]] std::string_view first_token(std::string_view text);
/// The first characters of a text, in quotes, for errors.
[[nodiscard]] std::string quoted_begin(std::string_view text);

}  // namespace tessera::io
