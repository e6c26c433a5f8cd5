// SPDX-License-Identifier: Apache-2.0
// What SentencePiece's and tiktoken's files look like.

#include "io/tokenizer/other_kinds.hpp"

#include <filesystem>

#include "io/file/file.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

constexpr const char* word_pieces = "vocab.txt";

/// ModelProto's first field: the first piece, whose first fields are its text and its score.
bool is_sentencepiece(std::string_view content) {
  constexpr char score = '\x15';
  if (content.size() < 5 || content[0] != '\n' || content[1] <= 0 || content[2] != '\n') return false;
  const auto behind_text = 4 + static_cast<std::size_t>(static_cast<unsigned char>(content[3]));
  return content[3] < content[1] && behind_text < content.size() && content[behind_text] == score;
}

/// A token in base64, a space, its rank.
bool is_tiktoken(std::string_view content) {
  const std::string_view line = content.substr(0, content.find('\n'));
  const std::size_t blank = line.find(' ');
  const auto all = [](std::string_view part, const char* set) {
    return !part.empty() && part.find_first_not_of(set) == part.npos;
  };
  return blank != line.npos &&
         all(line.substr(0, blank), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") &&
         all(line.substr(blank + 1), "0123456789\r");
}

}  // namespace

std::string tokenization_elsewhere(const std::string& directory) {
  return "Tokenize elsewhere: python3 -c 'import numpy, sys; from transformers import AutoTokenizer; "
         "t = AutoTokenizer.from_pretrained(\"" +
         directory +
         "\"); ids = numpy.array([i for f in sys.argv[1:] for i in t(open(f, encoding=\"utf-8\").read()).input_ids], "
         "\"u4\"); "
         "h = numpy.zeros(256, \"i4\"); h[:3] = 20240801, 7, len(ids); "
         "open(\"tokens.bin\", \"wb\").write(h.tobytes() + ids.tobytes())' FILE.txt ..., and give tokens.bin";
}

std::string unread_tokenizer(const std::string& directory) {
  for (const char* name : {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tiktoken.model",
                           "tekken.json", "vocab.json", word_pieces})
    if (exists(directory + "/" + name)) return name;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    if (entry.path().extension() == ".tiktoken") return entry.path().filename().string();
  return exists(directory + "/tokenizer_config.json") ? "tokenizer_config.json" : "";
}

std::string tokenizer_conversion(const std::string& directory) {
  if (unread_tokenizer(directory) == word_pieces) return tokenization_elsewhere(directory);  // with one it is not read
  return "Make its tokenizer.json: python3 -c 'from transformers import AutoTokenizer; "
         "AutoTokenizer.from_pretrained(\"" +
         directory + "\").save_pretrained(\"" + directory + "\")'";
}

void refuse_other_tokenizers(std::string_view content, const std::string& file) {
  const char* const kind = is_sentencepiece(content) ? "a SentencePiece model"
                           : is_tiktoken(content)    ? "a tiktoken vocabulary"
                                                     : nullptr;
  if (kind != nullptr)
    throw Error(ExitCode::data, std::string("this is ") + kind + ", which is not read: a tokenizer.json is", file,
                tokenizer_conversion(directory_of(file)));
}

}  // namespace tessera::io
