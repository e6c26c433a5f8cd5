// SPDX-License-Identifier: Apache-2.0
#pragma once
// What generation needs of a chat template: the text before an answer, and the token behind it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/chat/chat_template.hpp"
#include "io/chat/conversation_row.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace tessera::io {

/// A user's message as text, with the header of the answer. `system`: a system message before it; "": none. Throws
/// TemplateError.
[[nodiscard]] std::string prompt_text(const ChatTemplate& chat, const std::string& prompt, const std::string& system);

/// A conversation that is to be answered as text, with the header of the answer. `system`: a system message, if the
/// conversation has none; "": none. Throws Error (data): the template refuses it.
[[nodiscard]] std::string prompt_text(const ChatTemplate& chat, ConversationRow row, const std::string& system);

struct PromptText {
  std::string text;                 // UTF-8
  std::vector<std::string> unread;  // keys of messages and variables of the template that the template does not read
};
/// The same, with what the template does not read. Arguments of calls are given to it as TemplateFormat does.
[[nodiscard]] PromptText render_prompt(const ChatTemplate& chat, ConversationRow row, const std::string& system);

/// The token in brackets, such as <|im_end|>, that the template prints behind an answer; absent if there is none. The
/// eos_token_id of base models often is another. Absent, too, with W081, if the template refuses a question with an
/// answer, with and without a system message. Throws TemplateError: a limit.
[[nodiscard]] std::optional<std::int32_t> end_of_turn(const ChatTemplate& chat, const TextTokenizer& tokenizer);

}  // namespace tessera::io
