// SPDX-License-Identifier: Apache-2.0
// The known pre-tokenizers and their pieces.

#include "io/tokenizer/pre_tokenizer.hpp"

#include <algorithm>

#include "io/tokenizer/component.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {
constexpr const char* lower_block = "\u2581";  // SentencePiece's replacement of a space
}

PreTokenizer::PreTokenizer(const Component& node) {
  add(node);
  if (pattern_ && !byte_level_) throw node.refuse("splits without ByteLevel, which is not supported");
}

void PreTokenizer::add(const Component& node) {
  if (node.absent()) return;
  const std::string type = node.type();
  if (byte_level_ || metaspace_)
    throw node.refuse("is \"" + type + "\" behind ByteLevel or Metaspace, which is not supported");
  if (type == "Sequence") {
    node.only({"pretokenizers"});
    for (const Component& part : node.child("pretokenizers").elements()) add(part);
  } else if (type == "Digits" || (type == "Split" && !node.child("pattern").child("String").absent())) {
    if (pattern_ || outer_.splits()) throw node.refuse("splits a second time, which is not supported");
    outer_ = OuterSplit(node);
  } else if (type == "Split") {
    add_split(node);
  } else if (type == "ByteLevel") {
    add_byte_level(node);
  } else if (type == "Metaspace") {
    add_metaspace(node);
  } else {
    throw node.refuse("is \"" + type + "\", which is not supported");
  }
}

void PreTokenizer::add_split(const Component& node) {
  node.only({"pattern", "behavior", "invert"});
  const Component pattern = node.child("pattern");
  pattern.only({"Regex"});
  if (pattern_ || outer_.splits()) throw node.refuse("splits a second time, which is not supported");
  const std::string regex = pattern.text("Regex", "");
  pattern_ = split_pattern(regex);
  if (!pattern_) throw node.refuse("splits by a pattern that is not supported: " + regex);
  // The patterns match every character, so all behaviors that separate matches give the same pieces.
  const std::string behavior = node.text("behavior", "");
  const bool invert = node.flag("invert", false);
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert))
    throw node.refuse("has the behavior " + behavior + (invert ? ", inverted" : "") + ", which is not supported");
}

void PreTokenizer::add_byte_level(const Component& node) {
  node.only({"add_prefix_space", "trim_offsets", "use_regex"});
  byte_level_ = true;
  prefix_space_ = node.flag("add_prefix_space", true);
  const bool use_regex = node.flag("use_regex", true);
  if ((pattern_ && use_regex) || ((pattern_ || outer_.splits()) && prefix_space_))
    throw node.refuse("splits, or adds spaces, behind a Split, which is not supported");
  if (use_regex) pattern_ = SplitPattern::gpt2;
}

void PreTokenizer::add_metaspace(const Component& node) {
  node.only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  if (pattern_ || outer_.splits()) throw node.refuse("is a Metaspace behind a Split, which is not supported");
  metaspace_ = true;
  mark_ = node.text("replacement", lower_block);
  if (mark_.empty() || utf8::step(mark_).length != static_cast<int>(mark_.size()))
    throw node.refuse("replaces by no single character");
  const std::string scheme = node.text("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    throw node.refuse("has the prepend_scheme \"" + scheme + "\", which is not supported");
  scheme_ = scheme == "always" ? Scheme::always : scheme == "first" ? Scheme::first : Scheme::never;
  split_at_mark_ = node.flag("split", true);
}

void PreTokenizer::learn(const BpeModel& model) {
  if (byte_level_) return;
  if (mark_.empty()) mark_ = lower_block;
  if (model.ignores_merges()) return;
  split_words_ = !split_at_mark_ && model.never_joins_before(mark_);
  split_lines_ = model.stands_alone('\n');
}

bool PreTokenizer::ends_pieces_at_newlines(const BpeModel& model) const {
  if (outer_.matches('\n')) return false;
  if (pattern_) return true;
  return mark_ != "\n" && !model.ignores_merges() && model.never_joins_behind('\n');
}

std::string PreTokenizer::describe() const {
  if (byte_level_) return "byte-level BPE, " + outer_.describe() + (pattern_ ? name_of(*pattern_) : "no") + " split";
  if (outer_.splits()) return "BPE of characters, " + outer_.describe() + "no other split";
  return metaspace_ ? "BPE of characters, Metaspace" : "BPE of characters, no split";
}

std::string_view PreTokenizer::prepare(std::string_view section, Normalizer::Position position, bool first,
                                       std::string& buffer) const {
  const bool begins = position == Normalizer::Position::beginning;
  if (byte_level_) {
    if (!prefix_space_ || !begins || section.starts_with(' ')) return section;
    buffer.assign(" ").append(section);
    return buffer;
  }
  if (!metaspace_) return section;
  replace_all(section, " ", mark_, buffer);
  const bool wanted = scheme_ == Scheme::always || (scheme_ == Scheme::first && first);
  if (wanted && begins && !buffer.starts_with(mark_)) buffer.insert(0, mark_);
  return buffer;
}

const char* PreTokenizer::next(const char* at, const char* end) const {
  if (pattern_) return piece_end(*pattern_, at, end);
  const auto mark_at = [&](const char* p) {
    return std::string_view(p, static_cast<std::size_t>(end - p)).starts_with(mark_);
  };
  const bool split_marks = split_words_ || split_at_mark_;
  if (split_lines_ && *at == '\n') return std::find_if(at, end, [](char c) { return c != '\n'; });
  if (split_at_mark_ && mark_at(at)) at += mark_.size();
  while (split_words_ && mark_at(at)) at += mark_.size();
  for (; at != end; ++at) {
    if (split_lines_ && *at == '\n') break;
    if (split_marks && *at == mark_[0] && mark_at(at)) break;
  }
  return at;
}

}  // namespace tessera::io
