// SPDX-License-Identifier: Apache-2.0
#pragma once
// Documents to token ids: texts with the tokenizer's special tokens, rows, and conversations by a chat template.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/chat/chat_text.hpp"
#include "io/chat/pair_row.hpp"
#include "io/corpus/corpus.hpp"
#include "io/tokenizer/encoder.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

/// How rows become documents.
struct RowSettings {
  bool strict = false;               // a row that cannot be used ends the run
  const ChatFormat* chat = nullptr;  // of conversations; needed if the corpus has some
  std::uint64_t seed = 0;            // chooses rows of files with "#500" or ":0.3"
  bool pairs = false;                // each row is two documents, the chosen and the rejected (io/chat/pair_row.hpp)
  bool margins = false;              // of pairs: a third document is the row's margin (io::margin_tokens)
  bool labels = false;               // of pairs: a row may have a label in place of one, which is an empty document
  std::vector<std::int32_t> images = {};  // tokens that stand for images or videos: a document has none
};

/// Token ids of documents, one after another.
struct EncodedDocuments {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> loss;    // for each id, an index of `weights`; empty if `masks` is not set
  std::vector<float> weights{0, 1};  // in the loss
  std::vector<std::int64_t> ends;    // of documents, in ids
  SkippedRows skipped;
  std::set<std::string> renamed;            // keys of the corpus' columns that a row had
  std::int64_t without_tools = 0;           // conversations whose tools the chat template does not read
  std::int64_t without_reasoning = 0;       // conversations with reasoning that the chat template leaves out
  std::int64_t without_messages = 0;        // conversations with a message that it leaves out
  std::int64_t pairs = 0, equal_pairs = 0;  // of two answers; those whose two documents are the same
  std::int64_t labelled = 0;                // rows with one answer and a label
  std::int64_t after_think = 0;             // of labels: answers behind an empty think block, which has no loss
  utf8::Census read;                        // of the bytes that the documents were made of
  bool masks = false;
  void clear();  // keeps weights, masks and `renamed`
  /// The index of a weight, which is added if it is new. Throws RowError: more than 256 weights.
  [[nodiscard]] std::uint8_t index_of(double weight);
};

class DocumentEncoder {
 public:
  /// `eos` ends a document that is a text, unless the tokenizer's template adds it. A text that begins with the tokens
  /// that the template puts before it, or ends with those behind it or `eos`, gets no second ones.
  DocumentEncoder(const TextTokenizer& tokenizer, std::optional<std::int32_t> eos, RowSettings settings);

  /// Appends the documents in `range`. `all_rows`: rows of each file; only of files that select rows. Throws Error
  /// (data): a zero byte, or a token that stands for an image, in a text; with `strict`, the first row that cannot be
  /// used or has a key that is not read, and bytes that are not UTF-8.
  void encode(const Corpus& corpus, const Corpus::ByteRange& range, const std::vector<std::int64_t>& all_rows,
              EncodedDocuments& made);
  /// Appends one row, as read_row returned it, by its own form. Throws RowError; then `made` is as before, but for the
  /// weights.
  void encode_row(nlohmann::ordered_json row, const Columns& columns, EncodedDocuments& made);
  /// Lone surrogates, NaN and Infinity in rows, which were replaced.
  [[nodiscard]] std::int64_t replaced() const { return replaced_; }

 private:
  void encode_text(std::string_view text, bool begins, bool ends, EncodedDocuments& made, double weight = 1);
  void refuse_images(std::size_t first, EncodedDocuments& made) const;
  void append_end(std::vector<std::int32_t>& ids, std::size_t first) const;
  void encode_chat(ChatText chat, EncodedDocuments& made);
  void encode_conversation(ConversationRow conversation, EncodedDocuments& made);
  void encode_pair(PairRow pair, EncodedDocuments& made);
  static void append_margin(float margin, EncodedDocuments& made);
  static void require_margin(nlohmann::ordered_json lost, const Columns& columns);
  void encode_answer(const std::string& prompt, const std::string& answer, EncodedDocuments& made);
  [[nodiscard]] std::vector<std::string> checked(std::vector<std::string> unread) const;

  const TokenizerTables& tables_;
  Encoder encoder_;
  std::optional<std::int32_t> eos_;
  RowSettings settings_;
  std::int64_t replaced_ = 0;
};

}  // namespace tessera::io
