// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text to token ids and back by a model's tokenizer.json, with the same ids as Hugging Face's `tokenizers`. Byte-level
// BPE (GPT-2, Llama 3, Qwen) and SentencePiece-style BPE (Llama 2, Mixtral). Other features are refused by name.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace tessera::io {

/// Encoding: whether the post-processor adds its tokens (BOS). Decoding: whether special tokens appear in the text.
enum class Special : unsigned char { without, with };

struct TokenizerTables;

/// A tokenizer: immutable, cheap to copy, safe to share between threads.
class TextTokenizer {
 public:
  /// From a directory with a tokenizer.json, or with vocab.json and merges.txt (vocab_merges.hpp), or from a
  /// tokenizer.json or vocab.json; generation_config.json, config.json and
  /// tokenizer_config.json in the same directory name the ids that begin and end a document. Throws Error (data):
  /// missing, damaged, or with an unsupported component, by name.
  [[nodiscard]] static TextTokenizer load(const std::string& path);
  /// From a tokenizer.json's text alone; `where` names it in errors.
  [[nodiscard]] static TextTokenizer parse(std::string_view json, const std::string& where);
  /// The file that load() reads there, tokenizer.json before vocab.json; "" if there is none.
  [[nodiscard]] static std::string file_at(const std::string& path);
  /// True if load() would find a file there.
  [[nodiscard]] static bool exists(const std::string& path) { return !file_at(path).empty(); }

  /// Ids of a text. Invalid UTF-8 becomes U+FFFD, one for each maximal part, as with Python's errors="replace".
  /// For much text use a TextEncoder, which caches words.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Special special) const;
  /// Text of ids, as UTF-8 (invalid bytes become U+FFFD). Unknown ids give no text, as with Hugging Face's tokenizers.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, Special special) const;

  /// One more than the largest id; a model's vocab_size may be larger.
  [[nodiscard]] std::int32_t vocab_size() const;
  /// From the configuration files; absent if they name none.
  [[nodiscard]] std::optional<std::int32_t> bos_id() const;
  [[nodiscard]] std::optional<std::int32_t> eos_id() const;  // the first of eos_ids
  /// Every id that ends a generated text.
  [[nodiscard]] const std::vector<std::int32_t>& eos_ids() const;
  /// Id of a token as the file spells it ("<|endoftext|>", "Ġthe"); absent if there is none.
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token) const;
  /// The file's spelling of an id; "" if there is none.
  [[nodiscard]] std::string_view token(std::int32_t id) const;
  [[nodiscard]] bool is_special(std::int32_t id) const;
  /// "byte-level BPE, GPT-2 split, 50257 tokens".
  [[nodiscard]] std::string describe() const;
  /// Where transformers 5 is known to read the files otherwise, in words; "": nowhere.
  [[nodiscard]] const std::string& difference() const { return difference_; }
  /// A hash of everything that the ids depend on.
  [[nodiscard]] std::uint64_t hash() const;

  [[nodiscard]] const TokenizerTables& tables() const { return *tables_; }

 private:
  explicit TextTokenizer(std::shared_ptr<const TokenizerTables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const TokenizerTables> tables_;
  std::vector<std::int32_t> eos_ids_;
  std::optional<std::int32_t> bos_id_;
  std::string difference_;
};

/// Encodes much text with a bounded cache of words. One thread at a time: use one encoder for each thread. Linear in
/// the text's length (n log n within a word of n bytes).
class TextEncoder {
 public:
  explicit TextEncoder(const TextTokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;
  TextEncoder& operator=(TextEncoder&&) noexcept;

  /// Appends the ids of `text` to `ids`. Throws Error (data) if the text has 512 MiB or more.
  void encode(std::string_view text, Special special, std::vector<std::int32_t>& ids);
  /// Appends the ids of a UTF-8 text, without the template's tokens. For each of `offsets`, bytes of `text` that
  /// ascend, sets in `ids_before` how many of `ids` end at or before it. A token that an offset lies in is behind it.
  void encode(std::string_view text, std::span<const std::size_t> offsets, std::vector<std::int32_t>& ids,
              std::vector<std::size_t>& ids_before);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes ids one by one; a token may end in the middle of a character. The joined results equal decode() of all ids,
/// as long as these make valid UTF-8.
class StreamDecoder {
 public:
  StreamDecoder(const TextTokenizer& tokenizer, Special special);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// The text that this id completes; may be "", never part of a character.
  [[nodiscard]] std::string push(std::int32_t id);
  /// U+FFFD if an incomplete character is left, else "". Resets the decoder.
  [[nodiscard]] std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::io
