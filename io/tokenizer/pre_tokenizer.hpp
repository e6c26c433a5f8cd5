#pragma once
// tokenizer.json's "pre_tokenizer": how a normalised section becomes the pieces that BPE works on.

#include <optional>
#include <string>
#include <string_view>

#include "io/tokenizer/bpe_model.hpp"
#include "io/tokenizer/normalizer.hpp"
#include "io/tokenizer/split.hpp"

namespace tessera::io {

class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// null, ByteLevel, Split of a known pattern and then ByteLevel, Metaspace; also as a Sequence.
  /// Throws Error (data) for others.
  explicit PreTokenizer(const Component& node);

  [[nodiscard]] BpeModel::Alphabet alphabet() const {
    return byte_level_ ? BpeModel::Alphabet::bytes : BpeModel::Alphabet::characters;
  }
  /// Where merges may be taken for granted to stop: asks the model, once.
  void learn(const BpeModel& model);
  /// True if a newline between two characters that are no white space always ends a piece.
  [[nodiscard]] bool ends_pieces_at_newlines(const BpeModel& model) const;
  [[nodiscard]] std::string describe() const;

  /// The section as it is cut: with what goes before it and characters replaced; in `room`, which it
  /// is not in yet, if it differs. `first`: it begins the document.
  [[nodiscard]] std::string_view prepare(std::string_view section, Normalizer::Place place, bool first,
                                         std::string& room) const;
  /// The end of the piece at `at`, before `end`.
  [[nodiscard]] const char* next(const char* at, const char* end) const;

 private:
  enum class Scheme : unsigned char { always, first, never };
  void add(const Component& node);
  void add_split(const Component& node);
  void add_byte_level(const Component& node);
  void add_metaspace(const Component& node);

  bool byte_level_ = false, prefix_space_ = false;
  std::optional<SplitPattern> pattern_;
  bool metaspace_ = false;
  Scheme scheme_ = Scheme::always;
  std::string mark_;            // what stands for a space: "▁"
  bool split_at_mark_ = false;  // before every mark
  bool split_words_ = false;    // before a mark behind something else: nothing merges across
  bool split_lines_ = false;    // around newlines: they merge with nothing
};

}  // namespace tessera::io
