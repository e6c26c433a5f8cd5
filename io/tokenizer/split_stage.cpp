// SPDX-License-Identifier: Apache-2.0
// Parses stages; joins matches with their neighbors as Hugging Face's `tokenizers` does.

#include "io/tokenizer/split_stage.hpp"

#include "io/tokenizer/component.hpp"
#include "io/tokenizer/regex_classes.hpp"
#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

using Behavior = SplitStage::Behavior;

/// Absent for Removed.
std::optional<Behavior> behavior_of(const Component& node, const std::string& fallback) {
  const std::string name = node.text("behavior", fallback);
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  if (name != "Removed") throw node.refuse("has the behavior " + name + ", which is not known");
  return std::nullopt;
}

Error loses_text(const Component& node) { return node.refuse("has the behavior Removed, which would lose text"); }

}  // namespace

SplitStage::SplitStage(const Component& node) {
  if (node.type() == "Split") {
    read_split(node);
    return;
  }
  if (node.type() == "Digits") {
    node.only({"individual_digits"});
    characters_ = Characters::numbers;
    behavior_ = node.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous;
    return;
  }
  node.only({"behavior"});
  characters_ = Characters::punctuation;
  const std::optional<Behavior> behavior = behavior_of(node, "Isolated");
  if (!behavior) throw loses_text(node);
  behavior_ = *behavior;
}

void SplitStage::read_split(const Component& node) {
  node.only({"pattern", "behavior", "invert"});
  const Component pattern = node.child("pattern");
  pattern.only({"String", "Regex"});
  if (pattern.child("String").absent() == pattern.child("Regex").absent())
    throw node.refuse("has no pattern that is a String or a Regex");
  const std::optional<Behavior> behavior = behavior_of(node, "");
  invert_ = node.flag("invert", false);
  behavior_ = behavior.value_or(Behavior::isolated);
  if (pattern.child("Regex").absent()) {
    string_ = pattern.text("String", "");
    if (string_.empty()) throw node.refuse("splits by an empty string, which is not supported");
    if (!behavior) throw loses_text(node);
    return;
  }
  const std::string regex = pattern.text("Regex", "");
  pattern_ = split_pattern(regex);
  // Removed, inverted: of a pattern that matches all of a text nothing is removed.
  if (!behavior && !(pattern_ && covers_text(*pattern_) && invert_)) throw loses_text(node);
  if (pattern_ && behavior_ == Behavior::isolated) return;
  pattern_.reset();
  try {
    regex_ = std::make_shared<const Regex>(regex);
  } catch (const UnsupportedRegex& why) {
    throw node.refuse(std::string("splits by a pattern that is not supported (") + why.what() + "): " + regex);
  }
}

std::string SplitStage::describe() const {
  if (pattern_) return name_of(*pattern_) + std::string(" split");
  if (characters_ == Characters::punctuation) return "punctuation apart";
  if (characters_ == Characters::numbers) return behavior_ == Behavior::isolated ? "digits apart" : "numbers apart";
  return regex_ != nullptr ? "split by a regular expression" : "split at \"" + string_ + "\"";
}

StageCursor::StageCursor(const SplitStage& stage) : stage_(&stage) {
  if (stage.regex_ != nullptr) search_.emplace(*stage.regex_);
}

void StageCursor::start(const char* at, const char* end) {
  at_ = at;
  end_ = end;
  if (stage_->pattern_) return;
  piece_ = at;
  if (search_) search_->start({at, static_cast<std::size_t>(end - at)});
  match_.reset();
  ahead_.reset();
  searched_ = false;
}

std::optional<Regex::Match> StageCursor::match() {
  if (search_) return search_->next();
  if (!stage_->string_.empty()) {
    const std::size_t found = std::string_view(at_, static_cast<std::size_t>(end_ - at_)).find(stage_->string_);
    if (found == std::string_view::npos) return std::nullopt;
    return Regex::Match{at_ + found, at_ + found + stage_->string_.size()};
  }
  const auto is_member =
      stage_->characters_ == SplitStage::Characters::numbers ? unicode::is_numeric : unicode::is_punctuation;
  for (const char* at = at_; at != end_;) {
    const utf8::Point point = utf8::read(at);
    if (is_member(point.code)) return Regex::Match{at, at + point.length};
    at += point.length;
  }
  return std::nullopt;
}

std::optional<StageCursor::Segment> StageCursor::segment() {
  if (!searched_) {
    match_ = match();
    searched_ = true;
  }
  if (!match_ && at_ == end_) return std::nullopt;
  Segment made{match_ ? match_->begin : end_, false};
  if (match_ && match_->begin == at_) {
    made = {match_->end, true};
    searched_ = false;
  }
  at_ = made.end;
  made.is_match ^= stage_->invert_;
  return made;
}

const char* StageCursor::next_joined() {
  const auto take_ahead = [this] {
    const Segment taken = *ahead_;
    ahead_.reset();
    return taken;
  };
  const char* const begin = piece_;
  do {
    const std::optional<Segment> first = ahead_ ? take_ahead() : segment();
    if (!first) return end_;
    piece_ = first->end;
    bool last = first->is_match;
    while (stage_->behavior_ != Behavior::isolated) {
      if (!ahead_) ahead_ = segment();
      if (!ahead_) break;
      const bool joins = stage_->behavior_ == Behavior::contiguous             ? ahead_->is_match == last
                         : stage_->behavior_ == Behavior::merged_with_previous ? ahead_->is_match && !last
                                                                               : last && !ahead_->is_match;
      if (!joins) break;
      last = ahead_->is_match;
      piece_ = take_ahead().end;
    }
  } while (piece_ == begin);  // an empty match is no piece, but divides
  return piece_;
}

}  // namespace tessera::io
