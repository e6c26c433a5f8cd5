// SPDX-License-Identifier: Apache-2.0
// The supported decoders, and TokenJoiner.

#include "io/tokenizer/token_decoder.hpp"

#include <charconv>

#include "io/tokenizer/component.hpp"
#include "io/tokenizer/normalizer.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {
constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD
}

TokenDecoder::TokenDecoder(const Component& node) {
  if (node.absent()) throw node.refuse("is missing");
  const std::string type = node.type();
  if (type == "ByteLevel") {
    node.only({"add_prefix_space", "trim_offsets", "use_regex"});
    byte_level_ = true;
  } else if (type == "Metaspace") {
    node.only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    const std::string mark = node.text("replacement", "\u2581");
    if (mark.empty()) throw node.refuse("replaces nothing");
    replacements_.emplace_back(mark, " ");
    if (node.text("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never") != "never")
      dropped_at_first_ = mark;
  } else if (type == "Sequence") {
    node.only({"decoders"});
    int stage = 0;
    const std::vector<Component> steps = node.child("decoders").elements();
    if (steps.size() == 1 && steps[0].type() == "ByteLevel") byte_level_ = true;
    else
      for (const Component& step : steps) add_step(step, stage);
    if (!byte_level_ && stage < 3) throw node.refuse("has no step Fuse, without which it is not supported");
  } else {
    throw node.refuse("is \"" + type + "\", which is not supported");
  }
}

void TokenDecoder::add_step(const Component& node, int& stage) {
  const std::string type = node.type();
  const int order = type == "Replace" ? 1 : type == "ByteFallback" ? 2 : type == "Fuse" ? 3 : type == "Strip" ? 4 : 0;
  if (order == 0) throw node.refuse("is \"" + type + "\", which is not supported");
  if (order < stage || (order == stage && order != 1) || (order == 4 && stage != 3))
    throw node.refuse("is \"" + type + "\" at a place where it is not supported");
  stage = order;
  if (order == 1) {
    node.only({"pattern", "content"});
    const Component pattern = node.child("pattern");
    pattern.only({"String"});
    replacements_.emplace_back(pattern.text("String", ""), node.text("content", ""));
    if (replacements_.back().first.empty()) throw node.refuse("replaces nothing");
  } else if (order == 4) {
    node.only({"content", "start", "stop"});
    const std::string content = node.text("content", "");
    if (content.size() != 1 || node.integer("stop", 0) != 0 || node.integer("start", 0) < 0)
      throw node.refuse("strips something else than one ASCII character at the beginning, which is not supported");
    strip_character_ = content[0];
    strip_count_ = node.integer("start", 0);
  } else {
    node.only({});
    byte_fallback_ = byte_fallback_ || order == 2;
  }
}

std::string TokenDecoder::text_of(std::string_view token, bool first) const {
  std::string text(token), other;
  if (first && !dropped_at_first_.empty()) {
    replace_all(text, dropped_at_first_, "", other);
    text.swap(other);
  }
  for (const auto& [from, to] : replacements_) {
    replace_all(text, from, to, other);
    text.swap(other);
  }
  return text;
}

std::optional<unsigned char> TokenDecoder::byte_of(std::string_view token) const {
  if (!byte_fallback_ || token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [stop, failed] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (failed != std::errc{} || stop != token.data() + 5) return std::nullopt;
  return static_cast<unsigned char>(value);
}

void TokenJoiner::give(std::string_view text, std::string& out) {
  while (strip_left_ > 0 && !text.empty()) {
    if (text[0] != decoder_->strip_character()) strip_left_ = 0;
    else {
      text.remove_prefix(1);
      --strip_left_;
    }
  }
  out += text;
}

void TokenJoiner::give_complete(std::string& out) {
  std::string_view rest = waiting_;
  while (!rest.empty()) {
    const std::size_t valid = utf8::valid_prefix(rest);
    give(rest.substr(0, valid), out);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const utf8::Step step = utf8::step(rest);
    if (step.open) break;
    give(replacement_character, out);
    rest.remove_prefix(static_cast<std::size_t>(step.length));
  }
  waiting_.erase(0, waiting_.size() - rest.size());
}

void TokenJoiner::push_bytes(std::string_view bytes, std::string& out) {
  waiting_ += bytes;
  give_complete(out);
}

void TokenJoiner::end_run(std::string& out) {
  if (waiting_.empty()) return;
  if (utf8::valid_prefix(waiting_) == waiting_.size()) give(waiting_, out);
  else
    for (std::size_t i = 0; i < waiting_.size(); ++i) give(replacement_character, out);
  waiting_.clear();
}

void TokenJoiner::push_token(std::string_view token, std::string& out) {
  if (const std::optional<unsigned char> byte = decoder_->byte_of(token)) {
    waiting_ += static_cast<char>(*byte);
    if (!hold_runs_) give_complete(out);
  } else {
    end_run(out);
    give(decoder_->text_of(token, first_), out);
  }
  first_ = false;
}

void TokenJoiner::finish(std::string& out) {
  if (decoder_->byte_level()) {
    if (!waiting_.empty()) give(replacement_character, out);
    waiting_.clear();
  } else {
    end_run(out);
  }
  strip_left_ = decoder_->strip_count();
  first_ = true;
}

}  // namespace tessera::io
