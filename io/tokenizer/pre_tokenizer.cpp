// SPDX-License-Identifier: Apache-2.0
// The known pre-tokenizers and their pieces.

#include "io/tokenizer/pre_tokenizer.hpp"

#include <algorithm>

#include "io/tokenizer/byte_level.hpp"
#include "io/tokenizer/component.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {
constexpr const char* lower_block = "\u2581";  // SentencePiece's replacement of a space
}

PreTokenizer::PreTokenizer(const Component& node) { add(node); }

void PreTokenizer::add(const Component& node) {
  if (node.absent()) return;
  const std::string type = node.type();
  if (metaspace_ || (byte_level_ && !SplitStage::is_one(type)))
    throw node.refuse("is \"" + type + "\" behind ByteLevel or Metaspace, which is not supported");
  if (type == "Sequence") {
    node.only({"pretokenizers"});
    for (const Component& part : node.child("pretokenizers").elements()) add(part);
  } else if (SplitStage::is_one(type)) {
    (byte_level_ ? behind_ : stages_).emplace_back(node);
  } else if (type == "ByteLevel") {
    add_byte_level(node);
  } else if (type == "Metaspace") {
    add_metaspace(node);
  } else {
    throw node.refuse("is \"" + type + "\", which is not supported");
  }
}

void PreTokenizer::add_byte_level(const Component& node) {
  node.only({"add_prefix_space", "trim_offsets", "use_regex"});
  byte_level_ = true;
  prefix_space_ = node.flag("add_prefix_space", true);
  if (!stages_.empty() && prefix_space_) throw node.refuse("adds spaces behind a Split, which is not supported");
  if (node.flag("use_regex", true)) stages_.emplace_back(SplitPattern::gpt2);
}

void PreTokenizer::add_metaspace(const Component& node) {
  node.only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  if (!stages_.empty()) throw node.refuse("is a Metaspace behind a Split, which is not supported");
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

bool PreTokenizer::is_llama_pipeline(bool add_prefix_space, bool legacy) const {
  const Scheme scheme = !add_prefix_space ? Scheme::never : legacy ? Scheme::always : Scheme::first;
  return metaspace_ && mark_ == lower_block && !split_at_mark_ && scheme_ == scheme;
}

void PreTokenizer::learn(const BpeModel& model) {
  if (byte_level_) return;
  if (mark_.empty()) mark_ = lower_block;
  if (model.ignores_merges()) return;
  split_words_ = !split_at_mark_ && model.never_joins_before(mark_);
  split_lines_ = model.stands_alone('\n');
  joined_ = model.joined_pairs();
}

bool PreTokenizer::ends_pieces_at_newlines(const BpeModel& model) const {
  bool ends = mark_ != "\n" && !model.ignores_merges() && model.never_joins_behind('\n');
  for (const auto* stages : {&stages_, &behind_})
    for (const SplitStage& stage : *stages) {
      if (stage.crosses_newlines()) return false;
      if (stages == &stages_) ends = ends || stage.ends_at_newlines();
    }
  return ends;
}

std::string PreTokenizer::describe() const {
  std::string text = byte_level_  ? "byte-level BPE, "
                     : metaspace_ ? "BPE of characters, Metaspace"
                                  : "BPE of characters, ";
  if (metaspace_) return text;
  if (stages_.empty() && behind_.empty()) return text + "no split";
  const char* between = "";
  for (const auto* stages : {&stages_, &behind_})
    for (const SplitStage& stage : *stages) {
      text += between + stage.describe();
      between = ", ";
    }
  return text;
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

const char* PreTokenizer::unjoined_end(const char* at, const char* end) const {
  const auto mark_at = [&](const char* p) {
    if (end - p < static_cast<std::ptrdiff_t>(mark_.size())) return false;
    for (std::size_t i = 0; i < mark_.size(); ++i)  // three bytes, for which a call takes longer
      if (p[i] != mark_[i]) return false;
    return true;
  };
  const bool split_marks = split_words_ || split_at_mark_;
  if (split_lines_ && *at == '\n') return std::find_if(at, end, [](char c) { return c != '\n'; });
  if (split_at_mark_ && mark_at(at)) at += mark_.size();
  while (split_words_ && mark_at(at)) at += mark_.size();
  const auto parts = [&](char left, char right) {  // of characters above U+007F nothing is known
    return static_cast<signed char>(left | right) >= 0 &&
           !joined_[static_cast<std::size_t>(left)].test(static_cast<std::size_t>(right));
  };
  for (char before = '\x80'; at != end; before = *at++) {
    if (split_lines_ && *at == '\n') break;
    if (split_marks && *at == mark_[0] && mark_at(at)) break;
    if (!joined_.empty() && parts(before, *at)) break;
  }
  return at;
}

void PieceReader::Chain::start(const char* at, const char* end) {
  at_ = at;
  std::fill(ends_.begin(), ends_.end(), at);
  ends_[0] = end;
  if (!cursors_.empty()) cursors_[0].start(at, end);
}

const char* PieceReader::Chain::next() {
  std::size_t stage = 0;  // the first one whose piece has ended
  while (stage < cursors_.size() && ends_[stage + 1] != at_) ++stage;
  for (; stage < cursors_.size(); ++stage) {
    ends_[stage + 1] = cursors_[stage].next();
    if (stage + 1 < cursors_.size()) cursors_[stage + 1].start(at_, ends_[stage + 1]);
  }
  return at_ = ends_.back();
}

void PieceReader::start(std::string_view section) {
  at_ = part_end_ = section.data();
  chain_.allow(section.size());
  behind_.allow(2 * section.size());  // the bytes of a spelled one
  chain_.start(at_, at_ + section.size());
}

const char* PieceReader::next() {
  if (at_ == part_end_) {
    part_end_ = chain_.next();
    if (!behind_.empty()) {
      const std::string_view part(at_, static_cast<std::size_t>(part_end_ - at_));
      const auto itself = [](char c) { return c > 32 && c < 127; };
      if (!std::all_of(part.begin(), part.end(), itself)) spelling_ = spelling_of_bytes(part);
      else spelling_ = part;
      spelled_ = spelling_.data();
      behind_.start(spelled_, spelled_ + spelling_.size());
    }
  }
  if (!behind_.empty()) return at_ = next_behind();
  return at_ = of_.byte_level_ ? part_end_ : of_.unjoined_end(at_, part_end_);
}

const char* PieceReader::next_behind() {
  const char* const stop = behind_.next();
  const auto bytes = std::count_if(spelled_, stop, [](char c) { return (c & '\xC0') != '\x80'; });  // one a character
  spelled_ = stop;
  return at_ + bytes;
}

}  // namespace tessera::io
