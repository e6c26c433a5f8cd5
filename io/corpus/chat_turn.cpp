// SPDX-License-Identifier: Apache-2.0
// Renders short conversations, and looks at what surrounds the answer.

#include "io/corpus/chat_turn.hpp"

#include <exception>
#include <utility>

#include "io/chat/template_format.hpp"
#include "io/data/rows.hpp"
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

/// The text of the row with these messages, and the header of the answer.
std::string asked_text(const ChatTemplate& chat, const ConversationRow& row, Json messages) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  conversation.tools = row.tools;
  conversation.variables = row.variables;
  conversation.add_generation_prompt = true;
  return chat.render(conversation).text;
}

/// The row with the arguments of its calls as values, or as texts if the template refuses those or prints them as
/// Python's dicts; and its text.
std::pair<ConversationRow, std::string> asked_row(const ChatTemplate& chat, ConversationRow row) {
  std::exception_ptr refused;
  try {
    std::string text = asked_text(chat, row, row.messages);
    if (!prints_python(row, text)) return {std::move(row), std::move(text)};
    refused =
        std::make_exception_ptr(Error(ExitCode::data, "the chat template prints arguments of a call as Python's dict",
                                      {}, "Give another template with --template"));
  } catch (const jinja::TemplateError& error) {
    if (error.past_limit() || row.argument_texts.empty()) throw;
    refused = std::current_exception();
  }
  try {
    row = row.with_argument_texts();
    std::string text = asked_text(chat, row, row.messages);
    return {std::move(row), std::move(text)};
  } catch (const Error&) { std::rethrow_exception(refused); }
}

}  // namespace

std::string prompt_text(const ChatTemplate& chat, const std::string& prompt, const std::string& system) {
  ConversationRow row;
  row.add("user", prompt);
  return prompt_text(chat, std::move(row), system);
}

std::string prompt_text(const ChatTemplate& chat, ConversationRow row, const std::string& system) {
  return render_prompt(chat, std::move(row), system).text;
}

PromptText render_prompt(const ChatTemplate& chat, ConversationRow row, const std::string& system) {
  if (!system.empty()) row.set_system(system);
  const auto [asked, text] = asked_row(chat, std::move(row));
  const auto other = [&chat, &of = asked](const Json& messages) {
    try {
      return asked_text(chat, of, messages);
    } catch (const Error& error) { throw RowError{error.what()}; }
  };
  return {text, unread_keys(chat.used(!asked.tools.is_null()), asked, text, other)};
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
