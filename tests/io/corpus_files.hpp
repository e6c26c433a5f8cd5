// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two files of documents, and what the tests of corpora do with files: tokenize by several ranks, read ids.

#include <mutex>

#include "io/corpus/tokenize_corpus.hpp"
#include "io/data/dataset.hpp"
#include "tests/io/files.hpp"

namespace tessera::corpus {

using io::Special;
using io::TextTokenizer;
using test::expect_error;
using test::TempDir;
using Ids = std::vector<std::int32_t>;

inline TextTokenizer tokenizer(const std::string& family) {
  return TextTokenizer::load(std::string(TESSERA_TEST_DATA) + "/tokenizer/" + family + ".tokenizer.json");
}

inline io::CorpusReport tokenize(int ranks, const TextTokenizer& with, const std::vector<std::string>& files,
                                 const io::TokenizeOptions& check) {
  io::CorpusReport report;
  std::mutex guard;
  run_local(ranks, [&](World& world) {
    const io::CorpusReport mine = io::tokenize_corpus(world, with, io::Corpus(files), check);
    const std::lock_guard lock(guard);
    if (world.rank() == 0) report = mine;
  });
  return report;
}

inline Ids ids_in(const std::string& path) {
  const io::Dataset data = io::open_dataset({path});
  Ids ids(static_cast<std::size_t>(data.tokens->size()));
  data.tokens->read(0, data.tokens->size(), ids.data());
  return ids;
}

class CorpusFiles : public testing::Test {
 protected:
  CorpusFiles() {
    std::string lines, json;
    for (int i = 0; i < 400; ++i) {
      const std::string text = "Line " + std::to_string(i * 37) +
                               " of  the \u00dcbung\u2019s text, caf\u0065\u0301 \u6f22\u5b57 <|endoftext|>" +
                               std::string(i % 7, '!');
      lines += text + (i % 5 == 0 ? "\n\n  " : "\n");
      json += "{\"text\": \"" + text + "\\nnext " + std::to_string(i) + "\"}\n" + (i % 9 == 0 ? "\n" : "");
      documents.push_back(text + "\nnext " + std::to_string(i));
    }
    documents.insert(documents.begin(), lines);
    files = {folder.file("a.txt", lines), folder.file("b.jsonl", json)};
  }
  TempDir folder;
  std::vector<std::string> documents, files;
};

}  // namespace tessera::corpus
