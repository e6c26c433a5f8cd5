#pragma once
// Text to token ids and back, as a model's tokenizer.json says: the same ids as Hugging Face's `tokenizers`.
// Byte-level BPE (GPT-2, Llama 3, Qwen) and SentencePiece-style BPE (Llama 2, Mixtral). What the file asks for
// and is not here is refused by name.

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
  /// Of a directory with a tokenizer.json, or of such a file; generation_config.json, config.json and
  /// tokenizer_config.json beside it say what begins and ends a document. Throws Error (data): not there, damaged, or a
  /// component that is not built, by name.
  [[nodiscard]] static TextTokenizer load(const std::string& path);
  /// Of a tokenizer.json's text alone; `where` names it in errors.
  [[nodiscard]] static TextTokenizer parse(std::string_view json, const std::string& where);
  /// True if load() would find a tokenizer.json there.
  [[nodiscard]] static bool exists(const std::string& path);

  /// Ids of a text. Bytes that are no UTF-8 count as U+FFFD, one for each maximal part, as Python's errors="replace".
  /// For much text use a TextEncoder, which remembers words.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Special special) const;
  /// Text of ids, as UTF-8 (what is none: U+FFFD). An id that the tokenizer does not have is no text, as in Hugging
  /// Face's.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, Special special) const;

  /// One more than the largest id; a model's vocab_size may be larger.
  [[nodiscard]] std::int32_t vocab_size() const;
  /// What the configuration files name; absent if they name none.
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
  /// A hash of everything that decides about ids.
  [[nodiscard]] std::uint64_t hash() const;

  [[nodiscard]] const TokenizerTables& tables() const { return *tables_; }

 private:
  explicit TextTokenizer(std::shared_ptr<const TokenizerTables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const TokenizerTables> tables_;
  std::vector<std::int32_t> eos_ids_;
  std::optional<std::int32_t> bos_id_;
};

/// Encodes much text: keeps a bounded cache of words. One thread at a time; one encoder for each thread. Linear (n log
/// n within a word of n bytes) in the text, whatever it is.
class TextEncoder {
 public:
  explicit TextEncoder(const TextTokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;
  TextEncoder& operator=(TextEncoder&&) noexcept;

  /// Appends the ids of `text` to `ids`. Throws Error (data) if the text has 512 MiB or more.
  void encode(std::string_view text, Special special, std::vector<std::int32_t>& ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Ids to text as they come: a token may end in the middle of a character. What it has given out, joined, is what
/// decode() says of all ids, as long as they make UTF-8.
class StreamDecoder {
 public:
  StreamDecoder(const TextTokenizer& tokenizer, Special special);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// The text that is complete with this id; often "", never a part of a character.
  [[nodiscard]] std::string push(std::int32_t id);
  /// What is left: U+FFFD for a character that was never completed. The decoder begins anew.
  [[nodiscard]] std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::io
