// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pairs of answers as a text, for the tests of their rows.

#include "io/chat/pair_row.hpp"
#include "io/data/rows.hpp"

namespace tessera::test {

/// "uq|aa": the first letter of each role, and the content.
inline std::string turns_of(const io::ConversationRow& row) {
  std::string all;
  for (std::size_t i = 0; i < row.messages.size(); ++i)
    all += std::string(i == 0 ? "" : "|") + row.role(i)[0] + row.content(i);
  return all;
}

/// "chosen / rejected" by first letters of roles, "text: prompt + chosen / rejected", or why the row is refused.
inline std::string pair_of(const std::string& text) {
  std::int64_t repaired = 0;
  try {
    const io::PairRow pair = io::read_pair(io::parse_row(text, repaired));
    const std::string raw =
        pair.text ? "text: " + pair.text->prompt + "+" + pair.text->chosen + "/" + pair.text->rejected : "";
    if (!pair.has_template) return raw;
    return turns_of(pair.chosen) + " / " + turns_of(pair.rejected) + (raw.empty() ? "" : " " + raw);
  } catch (const io::RowError& error) { return "refused: " + error.why; }
}

}  // namespace tessera::test
