// SPDX-License-Identifier: Apache-2.0
#pragma once
// tokenizer.json's "pre_tokenizer": splits normalized text into the pieces (pre-tokens) that BPE merges.

#include <optional>
#include <string>
#include <string_view>

#include "io/tokenizer/bpe_model.hpp"
#include "io/tokenizer/normalizer.hpp"
#include "io/tokenizer/outer_split.hpp"
#include "io/tokenizer/split.hpp"

namespace tessera::io {

class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// null, ByteLevel, Split of a known pattern and then ByteLevel, Metaspace; also as a Sequence. Digits or Split by a
  /// plain string, alone or before ByteLevel. Throws Error (data) for others.
  explicit PreTokenizer(const Component& node);

  [[nodiscard]] BpeModel::Alphabet alphabet() const {
    return byte_level_ ? BpeModel::Alphabet::bytes : BpeModel::Alphabet::characters;
  }
  /// Asks the model, once, at which characters no merge can cross.
  void learn(const BpeModel& model);
  /// True if a newline between two non-space characters always ends a piece.
  [[nodiscard]] bool ends_pieces_at_newlines(const BpeModel& model) const;
  [[nodiscard]] std::string describe() const;

  /// The section with its prefix added and characters replaced: `section` itself, or in `buffer`. `first`: it begins
  /// the document.
  [[nodiscard]] std::string_view prepare(std::string_view section, Normalizer::Position position, bool first,
                                         std::string& buffer) const;
  /// The end of the part that begins at `at`, which is before `end`: parts (of Digits, of a Split by a string) are
  /// split into pieces independently. Without them, the end of the section.
  [[nodiscard]] const char* part_end(const char* at, const char* end) const { return outer_.next(at, end); }
  /// The end of the piece at `at`, which is before `end`, the end of the part.
  [[nodiscard]] const char* next(const char* at, const char* end) const;

 private:
  enum class Scheme : unsigned char { always, first, never };
  void add(const Component& node);
  void add_split(const Component& node);
  void add_byte_level(const Component& node);
  void add_metaspace(const Component& node);

  OuterSplit outer_;
  bool byte_level_ = false, prefix_space_ = false;
  std::optional<SplitPattern> pattern_;
  bool metaspace_ = false;
  Scheme scheme_ = Scheme::always;
  std::string mark_;            // the character that replaces a space: "▁"
  bool split_at_mark_ = false;  // before every mark
  bool split_words_ = false;    // before a mark that follows another character: no merge crosses
  bool split_lines_ = false;    // around newlines: no merge joins them with others
};

}  // namespace tessera::io
