#pragma once
// tokenizer.json's "decoder": the texts of tokens become one text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::io {

class Component;

class TokenDecoder {
 public:
  TokenDecoder() = default;
  /// ByteLevel; Metaspace; Sequence of Replace, ByteFallback, Fuse, Strip at the beginning, in that order.
  /// Throws Error (data) for others.
  explicit TokenDecoder(const Component& node);

  [[nodiscard]] bool byte_level() const { return byte_level_; }
  [[nodiscard]] bool byte_fallback() const { return byte_fallback_; }
  /// A token's own text, for decoders that are not byte-level. `first`: it is the first of its text.
  [[nodiscard]] std::string text_of(std::string_view token, bool first) const;
  /// The byte that <0xNN> stands for, if bytes are decoded; else absent.
  [[nodiscard]] std::optional<unsigned char> byte_of(std::string_view token) const;
  /// Characters to take away at the beginning of a text, as long as they are `strip_character`.
  [[nodiscard]] std::int64_t strip_count() const { return strip_count_; }
  [[nodiscard]] char strip_character() const { return strip_character_; }

 private:
  void add_step(const Component& node, int& stage);
  bool byte_level_ = false, byte_fallback_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  std::string dropped_at_first_;  // Metaspace: the first token's marks are no spaces
  std::int64_t strip_count_ = 0;
  char strip_character_ = ' ';
};

/// Text of one token after another. Bytes wait until they make a character.
class TokenJoiner {
 public:
  explicit TokenJoiner(const TokenDecoder& decoder) : decoder_(&decoder), strip_left_(decoder.strip_count()) {}
  /// Bytes of a byte-level token, or of an added one.
  void push_bytes(std::string_view bytes, std::string& out);
  void push_token(std::string_view token, std::string& out);
  /// What waits, as U+FFFD; then the joiner is new.
  void finish(std::string& out);
  /// Bytes wait for each other until the run of them ends, so that one that is no UTF-8 makes all of it
  /// U+FFFD, as in Hugging Face's.
  void hold_runs() { hold_runs_ = true; }

 private:
  void give(std::string_view text, std::string& out);
  void give_complete(std::string& out);
  void end_run(std::string& out);
  const TokenDecoder* decoder_;
  std::string waiting_;
  std::int64_t strip_left_ = 0;
  bool first_ = true, hold_runs_ = false;
};

}  // namespace tessera::io
