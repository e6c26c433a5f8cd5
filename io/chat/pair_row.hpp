// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows with two answers to one prompt, a chosen and a rejected one, as ms-swift and TRL write them.

#include <optional>
#include <string>

#include "io/chat/conversation_row.hpp"
#include "io/chat/row_form.hpp"

namespace tessera::io {

/// A prompt and what follows it in the two sequences, as plain texts.
struct TextPair {
  std::string prompt, chosen, rejected;
};

/// Two conversations, which are rendered by the chat template; or texts, which are not.
struct PairRow {
  ConversationRow chosen, rejected;
  std::optional<TextPair> text;  // the row's prompt and answers are texts: conversations too, if there is a template
  bool has_template = true;      // false: of `text`, whose prompt is the beginning that the two texts have in common
  bool has_chosen = true, has_rejected = true;  // of a row with a label, one of the two
};

/// True if a row has an answer that is rejected, or one that is chosen.
[[nodiscard]] bool is_pair(const nlohmann::ordered_json& row);

/// The pair in a row of one of these forms:
///   ms-swift: a conversation or a query and a response (row_form.hpp), whose last answer is chosen, with
///     "rejected_response", an answer in the place of that one, or "rejected_messages", a conversation;
///   TRL: "chosen" and "rejected", each a list of messages or a text, after "prompt", or with the prompt as what both
///     begin with.
/// Throws RowError, which names what the row lacks.
[[nodiscard]] PairRow read_pair(nlohmann::ordered_json row);

/// Takes "margin" from a row: how much more the chosen answer is worth, a number, or one as a text; 0 where there is
/// none. Throws RowError.
[[nodiscard]] float take_margin(nlohmann::ordered_json& row);

/// One answer and whether it is wanted: "label" (true, false, 1, 0, or such a text) beside a conversation, a query and
/// a response, or "prompt" and "completion" (TRL: lists of messages or texts). Rows with two answers are read by
/// read_pair. Throws RowError, which names what the row lacks.
[[nodiscard]] PairRow read_labelled(nlohmann::ordered_json row);

}  // namespace tessera::io
