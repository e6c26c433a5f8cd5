// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parses tokenizer.json: the vocabulary and the merges as lists, the rest as a tree. Checks the form of the file only.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::io {

struct TokenizerJson {
  nlohmann::ordered_json tree;                              // without model.vocab and model.merges
  std::vector<std::pair<std::string, std::int64_t>> vocab;  // of model.vocab, if it is a table
  std::vector<std::pair<std::string, std::string>> merges;  // of model.merges: "a b" and ["a", "b"]
};

/// Throws Error (data): not JSON, a key twice, deeper than 64 levels, a vocabulary whose values are not integers, a
/// merge that is not a pair.
[[nodiscard]] TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace tessera::io
