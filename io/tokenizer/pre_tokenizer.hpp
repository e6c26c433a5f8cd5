// SPDX-License-Identifier: Apache-2.0
#pragma once
// tokenizer.json's "pre_tokenizer": splits normalized text into the pieces (pre-tokens) that BPE merges.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/bpe_model.hpp"
#include "io/tokenizer/normalizer.hpp"
#include "io/tokenizer/split_stage.hpp"

namespace tessera::io {

class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// null; Split, Digits and Punctuation (split_stage.hpp), in any number and order, before and behind ByteLevel;
  /// Metaspace; also as a Sequence. Throws Error (data) for others.
  explicit PreTokenizer(const Component& node);

  [[nodiscard]] BpeModel::Alphabet alphabet() const {
    return byte_level_ ? BpeModel::Alphabet::bytes : BpeModel::Alphabet::characters;
  }
  /// Of byte-level BPE: whether a space is put before a text.
  [[nodiscard]] std::optional<bool> adds_prefix_space() const {
    return byte_level_ ? std::optional<bool>(prefix_space_) : std::nullopt;
  }
  /// Whether this is all that transformers' LlamaTokenizer does, with these arguments of its constructor.
  [[nodiscard]] bool is_llama_pipeline(bool add_prefix_space, bool legacy) const;
  /// Asks the model, once, at which characters no merge can cross.
  void learn(const BpeModel& model);
  /// True if a newline between two non-space characters always ends a piece.
  [[nodiscard]] bool ends_pieces_at_newlines(const BpeModel& model) const;
  [[nodiscard]] std::string describe() const;

  /// The section with its prefix added and characters replaced: `section` itself, or in `buffer`. `first`: it begins
  /// the document.
  [[nodiscard]] std::string_view prepare(std::string_view section, Normalizer::Position position, bool first,
                                         std::string& buffer) const;

 private:
  friend class PieceReader;
  enum class Scheme : unsigned char { always, first, never };
  void add(const Component& node);
  void add_byte_level(const Component& node);
  void add_metaspace(const Component& node);
  /// Of a part that begins at `at` and that no stage splits: where BPE of characters can be split.
  [[nodiscard]] const char* unjoined_end(const char* at, const char* end) const;

  std::vector<SplitStage> stages_;
  std::vector<SplitStage> behind_;  // behind ByteLevel: they see the characters that stand for bytes
  bool byte_level_ = false, prefix_space_ = false;
  bool metaspace_ = false;
  Scheme scheme_ = Scheme::always;
  std::string mark_;             // the character that replaces a space: "▁"
  bool split_at_mark_ = false;   // before every mark
  bool split_words_ = false;     // before a mark that follows another character: no merge crosses
  bool split_lines_ = false;     // around newlines: no merge joins them with others
  BpeModel::AsciiPairs joined_;  // between other pairs no merge crosses either; empty: this is not known
};

/// The pieces of a section that PreTokenizer::prepare() made, one after the other; reuses its memory. `of` must outlive
/// it.
class PieceReader {
 public:
  explicit PieceReader(const PreTokenizer& of) : of_(of), chain_(of.stages_), behind_(of.behind_) {}
  /// Begins a section, which is UTF-8 and not empty, and outlives the reading.
  void start(std::string_view section);
  /// The end of the next piece; called until that is the end of the section.
  [[nodiscard]] const char* next();

 private:
  /// Stages, each of which splits the pieces of the one before.
  class Chain {
   public:
    explicit Chain(const std::vector<SplitStage>& stages)
        : cursors_(stages.begin(), stages.end()), ends_(stages.size() + 1) {}
    [[nodiscard]] bool empty() const { return cursors_.empty(); }
    void allow(std::size_t bytes) {
      for (StageCursor& cursor : cursors_) cursor.allow(bytes);
    }
    void start(const char* at, const char* end);
    [[nodiscard]] const char* next();

   private:
    std::vector<StageCursor> cursors_;
    std::vector<const char*> ends_;  // of the whole, and of the current piece of each stage
    const char* at_ = nullptr;
  };
  [[nodiscard]] const char* next_behind();

  const PreTokenizer& of_;
  Chain chain_, behind_;
  const char *at_ = nullptr, *part_end_ = nullptr;
  std::string spelling_;           // of the part's bytes, for the stages behind ByteLevel
  const char* spelled_ = nullptr;  // the place in it, or in the part itself if its bytes stand for themselves
};

}  // namespace tessera::io
