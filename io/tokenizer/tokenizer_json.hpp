// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parses tokenizer.json: the vocabulary and the merges as lists, the rest as a tree. Checks the form of the file only.

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::io {

struct TokenizerJson {
  nlohmann::ordered_json tree;                                        // what is in the two tables is left out
  std::vector<std::pair<std::string_view, std::int64_t>> vocab;       // of model.vocab, if it is an object
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // of model.merges: "a b" and ["a", "b"]
  std::deque<std::string> unescaped;                                  // what strings with escapes mean
};

/// The tables refer to `text` and to `unescaped`. Throws Error (data): not JSON, a key twice, deeper than 64 levels, a
/// vocabulary whose values are not integers, a merge that is not a pair.
[[nodiscard]] TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace tessera::io
