// SPDX-License-Identifier: Apache-2.0
#pragma once
// One stage of a pre-tokenizer: Split, Digits, Punctuation, or the pattern of ByteLevel. It splits each part that the
// stage before it made.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/tokenizer/regex.hpp"
#include "io/tokenizer/split.hpp"

namespace tessera::io {

class Component;

class SplitStage {
 public:
  /// What of adjacent matches and texts between them is joined.
  enum class Behavior : unsigned char { isolated, merged_with_previous, merged_with_next, contiguous };

  explicit SplitStage(SplitPattern pattern) : pattern_(pattern) {}
  /// From a Split, Digits or Punctuation node. Throws Error (data) for behaviors that lose text, and for regular
  /// expressions that are not supported.
  explicit SplitStage(const Component& node);
  [[nodiscard]] static bool is_one(const std::string& type) {
    return type == "Split" || type == "Digits" || type == "Punctuation";
  }

  /// "GPT-2 split", "digits apart".
  [[nodiscard]] std::string describe() const;
  /// True if its pieces end at every newline where find_split_point() splits a text.
  [[nodiscard]] bool ends_at_newlines() const { return pattern_ && io::ends_at_newlines(*pattern_); }
  /// True if its pieces may depend on what is behind such a newline.
  [[nodiscard]] bool crosses_newlines() const { return regex_ != nullptr || string_.find('\n') != string_.npos; }

 private:
  friend class StageCursor;
  enum class Characters : unsigned char { none, numbers, punctuation };
  void read_split(const Component& node);

  // One of these:
  std::optional<SplitPattern> pattern_;
  Characters characters_ = Characters::none;
  std::string string_;
  std::shared_ptr<const Regex> regex_;

  Behavior behavior_ = Behavior::isolated;
  bool invert_ = false;  // what is between matches counts as the match
};

/// The pieces of a part, one after the other. The stage must outlive it.
class StageCursor {
 public:
  explicit StageCursor(const SplitStage& stage);
  /// Begins the part [at, end), which is UTF-8 and not empty.
  void start(const char* at, const char* end);
  /// The end of the next piece, which is not empty; there must be one.
  [[nodiscard]] const char* next() {
    if (!stage_->pattern_) return next_joined();
    return at_ = piece_end(*stage_->pattern_, at_, end_);
  }

 private:
  /// A match, or the text between two.
  struct Segment {
    const char* end = nullptr;
    bool is_match = false;
  };
  [[nodiscard]] const char* next_joined();
  [[nodiscard]] std::optional<Segment> segment();
  /// The next match at or behind at_; absent if there is none.
  [[nodiscard]] std::optional<Regex::Match> match();

  const SplitStage* stage_;
  const char *at_ = nullptr, *end_ = nullptr;
  const char* piece_ = nullptr;  // the end of the last piece
  std::optional<Regex::Search> search_;
  std::optional<Regex::Match> match_;  // the next one that is not passed
  std::optional<Segment> ahead_;       // read, and not part of a piece yet
  bool searched_ = false;              // match_ is known
};

}  // namespace tessera::io
