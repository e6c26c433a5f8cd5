// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of tests/io/tokenizer: the tokenizers of families, the texts, and what Hugging Face's `tokenizers` makes of
// them.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/file/text_file.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace tessera::tokenizer_files {

using io::Special;
using io::TextTokenizer;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

inline std::string data(const std::string& name) { return std::string(TESSERA_TEST_DATA) + "/tokenizer/" + name; }
inline Json golden(const std::string& name) { return Json::parse(io::read_text(data(name))); }

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

inline std::vector<std::string> texts() {
  std::vector<std::string> all;
  const Json file = golden("texts.json");
  for (const auto& text : file["texts"]) all.push_back(from_hex(text));
  return all;
}

}  // namespace tessera::tokenizer_files
