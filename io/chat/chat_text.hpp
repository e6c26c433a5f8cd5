// SPDX-License-Identifier: Apache-2.0
#pragma once
// Conversations as text by a chat template, and which parts of the text have loss.

#include <cstdint>
#include <string>
#include <vector>

#include "io/chat/conversation_row.hpp"

namespace tessera::io {

/// --loss_scale. standard ("default"): every assistant message with its end of turn. last_round: the last one. all:
/// everything. A message's own weight comes first.
enum class LossRule : unsigned char { standard, last_round, all };

/// Bytes [begin, end) of a text, and their weight in the loss.
struct LossSpan {
  std::size_t begin = 0, end = 0;
  double weight = 1;
  bool answer = true;  // false: text around answers, to which a token that an answer begins or ends in does not belong
};

struct ChatText {
  std::string text;                 // UTF-8
  std::vector<LossSpan> loss;       // ascending, disjoint
  bool lacks_tools = false;         // the conversation has descriptions of tools, which the template does not read
  bool lacks_reasoning = false;     // an answer has reasoning, which the template leaves out
  bool lacks_message = false;       // a message of the system, the user or a tool is left out by the template
  std::vector<std::string> unread;  // keys of messages and variables of the template that the template does not read
};

/// Renders conversations for training.
class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  /// Throws RowError: no assistant message; the template refuses the conversation; the assistant's text cannot be
  /// found in what the template makes of it.
  [[nodiscard]] virtual ChatText render(const ConversationRow& conversation) const = 0;
  /// A hash of what the texts and spans depend on.
  [[nodiscard]] virtual std::uint64_t hash() const = 0;
};

}  // namespace tessera::io
