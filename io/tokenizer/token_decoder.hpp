// SPDX-License-Identifier: Apache-2.0
#pragma once
// tokenizer.json's "decoder": joins the texts of tokens to one text.

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
  /// A token's text, for decoders that are not byte-level. `first`: it begins the text.
  [[nodiscard]] std::string text_of(std::string_view token, bool first) const;
  /// The byte that <0xNN> stands for, if bytes are decoded; else absent.
  [[nodiscard]] std::optional<unsigned char> byte_of(std::string_view token) const;
  /// How many leading `strip_character` are removed from a text.
  [[nodiscard]] std::int64_t strip_count() const { return strip_count_; }
  [[nodiscard]] char strip_character() const { return strip_character_; }

 private:
  void add_step(const Component& node, int& stage);
  bool byte_level_ = false, byte_fallback_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  std::string dropped_at_first_;  // Metaspace: what is removed from the first token
  std::int64_t strip_count_ = 0;
  char strip_character_ = ' ';
};

/// Joins token after token. Bytes are held until they form a character.
class TokenJoiner {
 public:
  explicit TokenJoiner(const TokenDecoder& decoder) : decoder_(&decoder), strip_left_(decoder.strip_count()) {}
  /// Bytes of a byte-level token, or of an added one.
  void push_bytes(std::string_view bytes, std::string& out);
  void push_token(std::string_view token, std::string& out);
  /// Gives the held bytes as U+FFFD and resets the joiner.
  void finish(std::string& out);
  /// Holds a whole run of bytes, so that one invalid byte turns all of it into U+FFFD, as Hugging Face's tokenizers do.
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
