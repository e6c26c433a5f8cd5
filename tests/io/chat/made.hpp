// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a template makes of a row of training data, with its parts that have loss in brackets.

#include <string>
#include <utility>

#include "io/chat/row_form.hpp"
#include "io/chat/template_format.hpp"
#include "io/data/rows.hpp"

namespace tessera::test {

/// What the template makes of a row; `why` if the row is refused.
struct Made {
  std::string text, why;  // the parts with loss in brackets ⟦ ⟧
  io::ChatText chat;
};

inline Made made_of(const std::string& text, const std::string& row, io::LossRule rule = io::LossRule::standard) {
  Made made;
  try {
    const io::TemplateFormat format(
        io::ChatTemplate::parse(text, "test", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}), rule, "");
    std::int64_t repaired = 0;
    auto parsed = io::parse_row(row, repaired);
    const io::RowForm form = io::require_form(parsed);
    made.chat = format.render(io::read_conversation(std::move(parsed), form));
  } catch (const io::RowError& error) {
    made.why = error.why;
    return made;
  }
  std::size_t at = 0;
  for (const io::LossSpan& span : made.chat.loss) {
    made.text += made.chat.text.substr(at, span.begin - at) + (span.weight == 0 ? "⟦0:" : "⟦");
    made.text += made.chat.text.substr(span.begin, span.end - span.begin) + "⟧";
    at = span.end;
  }
  made.text += made.chat.text.substr(at);
  return made;
}

}  // namespace tessera::test
