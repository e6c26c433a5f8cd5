// SPDX-License-Identifier: Apache-2.0
#pragma once
// tokenizer.json's "model": vocabulary, merges, and the treatment of unknown characters.

#include <array>
#include <bitset>
#include <string_view>
#include <vector>

#include "io/tokenizer/merges.hpp"
#include "io/tokenizer/tokenizer_json.hpp"
#include "io/tokenizer/vocabulary.hpp"

namespace tessera::io {

class Component;

class BpeModel {
 public:
  enum class Alphabet : unsigned char { bytes, characters };  // what pre-tokens consist of

  BpeModel() = default;
  /// Throws Error (data): not BPE, dropout, prefixes or suffixes of words; a token or an id twice; ids far beyond the
  /// number of tokens; a merge of, or to, something that is not a token; an incomplete alphabet, which would lose text.
  BpeModel(const Component& node, const TokenizerJson& json, Alphabet alphabet);

  /// Ids of a pre-token before merging: one for each byte or character; or one for all of it if it is a token and
  /// `ignore_merges` is set, which also sets `done`.
  void symbols(std::string_view piece, std::vector<std::int32_t>& ids, bool& done) const;
  [[nodiscard]] const Merges& merges() const { return merges_; }
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  /// The bytes that a token decodes to. Alphabet::bytes only.
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const { return bytes_.token(id); }
  [[nodiscard]] bool byte_fallback() const { return byte_fallback_; }
  [[nodiscard]] bool ignores_merges() const { return ignore_merges_; }
  /// True if no merge joins another character with a `right` after it, and `right` is a token itself: then text can be
  /// split before `right` after any other character.
  [[nodiscard]] bool never_joins_before(std::string_view right) const;
  /// True if no merge joins this character (below U+0080; also as <0xNN>) with another, and it is always a token.
  [[nodiscard]] bool stands_alone(char character) const;
  /// Pairs of characters below U+0080, the first one's place before the second's: whether text must stay whole between
  /// them, since a merge joins them, or one of the two may be no token.
  using AsciiPairs = std::vector<std::bitset<128>>;
  [[nodiscard]] AsciiPairs joined_pairs() const;
  /// True if no merge joins `left` (also as <0xNN>) with what follows, and `left` is always a token.
  [[nodiscard]] bool never_joins_behind(char left) const;

 private:
  void read_vocabulary(const Component& node, const TokenizerJson& json);
  void read_merges(const Component& node, const TokenizerJson& json);
  void read_bytes(const Component& node);
  void read_fallback(const Component& node);
  [[nodiscard]] bool always_a_token(char character) const;

  Alphabet alphabet_ = Alphabet::bytes;
  Vocabulary vocabulary_;  // as the file spells tokens
  Vocabulary bytes_;       // as bytes; searched only where merges are ignored
  Merges merges_;
  std::vector<std::int32_t> merged_;          // results of merges
  std::array<std::int32_t, 256> byte_ids_{};  // of single bytes: the alphabet, or <0xNN>
  std::vector<std::int32_t> character_ids_;   // of characters below U+10000; alphabet characters only
  std::int32_t unknown_ = Vocabulary::none;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace tessera::io
