// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokenizes a corpus into a token file on many ranks. The bytes do not depend on how many.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "io/corpus/corpus.hpp"
#include "io/corpus/document_encoder.hpp"
#include "io/data/token_file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

struct CorpusProgress {
  std::uint64_t bytes = 0, all_bytes = 0;
  std::int64_t tokens = 0;
};
/// The rows' report is of all ranks, on every rank; but `skipped.named` and `.literals` on rank 0 alone.
struct CorpusReport : RowReport {
  std::int64_t documents = 0, tokens = 0;
  Repairs repairs;
  std::uint64_t bytes = 0;
  int width = 2;  // bytes of an id in the file
};

struct TokenizeOptions {
  std::string out;                  // the token file
  std::optional<std::int32_t> eos;  // written after each text, unless the tokenizer's template adds it
  std::size_t range_bytes = std::size_t{1} << 20;
  RowSettings rows;
  std::function<void(const CorpusProgress&)> progress;  // called on rank 0 now and then; may be empty
  std::function<void()> check;                          // called on every rank before each range; may be empty
};

/// Collective. Tokenizes all documents, texts with the template's special tokens around each, into `options.out`:
/// uint16 ids if the tokenizer has at most 65536 tokens, else uint32. A second file has the ends of the documents
/// (documents.hpp), a third one what became of the rows (row_report.hpp), and if the corpus has conversations, a fourth
/// one which tokens have loss (loss_file.hpp). They are written under temporary names and renamed at the end. All ranks
/// must see one file system. Memory does not grow with the corpus. Throws Error (data) on every rank alike: a zero byte
/// in a text, a row that cannot be used or bytes that are not UTF-8 if rows are strict, a file of another encoding, no
/// usable document, a full disk. What `check` throws on any rank is thrown on every one, within a round.
CorpusReport tokenize_corpus(World& world, const TextTokenizer& tokenizer, const Corpus& corpus,
                             const TokenizeOptions& options);

}  // namespace tessera::io
