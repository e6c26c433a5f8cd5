// SPDX-License-Identifier: Apache-2.0
// Renders short conversations, and looks at what surrounds the answer.

#include "io/corpus/chat_turn.hpp"

#include "runtime/base/log.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;

/// The token in brackets that a text begins with.
std::optional<std::int32_t> marker_at_begin(const std::string& text, const TextTokenizer& tokenizer) {
  if (text[0] != '<' && text[0] != '[') return std::nullopt;
  const std::size_t end = text.find(text[0] == '<' ? '>' : ']');
  if (end == text.npos) return std::nullopt;
  const std::optional<std::int32_t> id = tokenizer.id_of(text.substr(0, end + 1));
  return id && tokenizer.encode(text, Special::without).front() == *id ? id : std::nullopt;
}

}  // namespace

std::string prompt_text(const ChatTemplate& chat, const std::string& prompt, const std::string& system) {
  ConversationRow row;
  row.add("user", prompt);
  return prompt_text(chat, std::move(row), system);
}

std::string prompt_text(const ChatTemplate& chat, ConversationRow row, const std::string& system) {
  if (!system.empty()) row.set_system(system);
  Conversation conversation;
  conversation.messages = std::move(row.messages);
  conversation.tools = std::move(row.tools);
  conversation.add_generation_prompt = true;
  return chat.render(conversation).text;
}

std::optional<std::int32_t> end_of_turn(const ChatTemplate& chat, const TextTokenizer& tokenizer) {
  constexpr std::string_view answer = "tessera-answer";
  const auto message = [](const char* role, std::string_view content) {
    return Json{{"role", role}, {"content", content}};
  };
  Conversation conversation;
  conversation.messages = Json::array({message("user", "question"), message("assistant", answer)});
  std::string text;
  try {
    text = chat.render(conversation).text;
  } catch (const jinja::TemplateError& error) {
    if (error.past_limit()) throw;
    conversation.messages.insert(conversation.messages.begin(), message("system", "system"));  // some demand one
    try {
      text = chat.render(conversation).text;
    } catch (const jinja::TemplateError& other) {
      if (other.past_limit()) throw;
      log::warn(81, std::string("the chat template refuses a question with an answer, so the token behind an answer is "
                                "not known, and generation does not stop at it: ") +
                        other.what());
      return std::nullopt;
    }
  }
  const std::size_t at = text.rfind(answer);
  if (at == text.npos) return std::nullopt;
  const std::size_t begin = text.find_first_not_of(" \n", at + answer.size());
  return begin == text.npos ? std::nullopt : marker_at_begin(text.substr(begin), tokenizer);
}

}  // namespace tessera::io
