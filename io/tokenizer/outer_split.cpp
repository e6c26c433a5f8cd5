// SPDX-License-Identifier: Apache-2.0
// Parts by digits and by a plain string, as Hugging Face's `tokenizers` merges matches with their neighbors.

#include "io/tokenizer/outer_split.hpp"

#include <algorithm>
#include <string_view>

#include "io/tokenizer/component.hpp"
#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

OuterSplit::OuterSplit(const Component& node) {
  if (node.type() == "Digits") {
    node.only({"individual_digits"});
    by_digits_ = true;
    behavior_ = node.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous;
    return;
  }
  node.only({"pattern", "behavior", "invert"});
  pattern_ = node.child("pattern").text("String", "");
  if (pattern_.empty()) throw node.refuse("splits by an empty string, which is not supported");
  const std::string behavior = node.text("behavior", "");
  const bool invert = node.flag("invert", false);
  if (behavior == "Isolated") behavior_ = Behavior::isolated;
  else if (behavior == "MergedWithPrevious") behavior_ = Behavior::merged_with_previous;
  else if (behavior == "MergedWithNext") behavior_ = Behavior::merged_with_next;
  else if (behavior == "Contiguous") behavior_ = Behavior::contiguous;
  if (invert || (behavior_ == Behavior::isolated && behavior != "Isolated"))
    throw node.refuse("has the behavior " + behavior + (invert ? ", inverted" : "") + ", which is not supported");
}

std::string OuterSplit::describe() const {
  if (by_digits_) return behavior_ == Behavior::isolated ? "digits apart, " : "numbers apart, ";
  return pattern_.empty() ? "" : "split at \"" + pattern_ + "\", ";
}

const char* OuterSplit::next_digits(const char* at, const char* end) const {
  const utf8::Point first = utf8::read(at);
  const bool number = unicode::is_numeric(first.code);
  at += first.length;
  if (number && behavior_ == Behavior::isolated) return at;
  while (at != end) {
    const utf8::Point point = utf8::read(at);
    if (unicode::is_numeric(point.code) != number) break;
    at += point.length;
  }
  return at;
}

const char* OuterSplit::next(const char* at, const char* end) const {
  if (by_digits_) return next_digits(at, end);
  if (pattern_.empty()) return end;
  const std::string_view text(at, static_cast<std::size_t>(end - at));
  const auto match_at = [&](std::size_t from) { return text.substr(from).starts_with(pattern_); };
  if (match_at(0)) {
    std::size_t stop = pattern_.size();
    if (behavior_ == Behavior::contiguous)
      while (match_at(stop)) stop += pattern_.size();
    // The last match of a run joins the text after it.
    if (behavior_ != Behavior::merged_with_next || stop == text.size() || match_at(stop)) return at + stop;
    return at + std::min(text.find(pattern_, stop), text.size());
  }
  const std::size_t match = text.find(pattern_);
  if (match == text.npos) return end;
  return at + match + (behavior_ == Behavior::merged_with_previous ? pattern_.size() : 0);  // the first of a run
}

}  // namespace tessera::io
