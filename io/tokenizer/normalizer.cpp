// SPDX-License-Identifier: Apache-2.0
// Normalization steps.

#include "io/tokenizer/normalizer.hpp"

#include <algorithm>

#include "io/tokenizer/component.hpp"
#include "io/tokenizer/unicode.hpp"

namespace tessera::io {

void replace_all(std::string_view text, std::string_view from, std::string_view to, std::string& out) {
  if (from.size() == 1) {  // usually a space, in every few bytes
    const auto found = static_cast<std::size_t>(std::count(text.begin(), text.end(), from[0]));
    out.resize(text.size() - found + found * to.size());
    char* end = out.data();
    for (const char c : text)
      if (c == from[0]) end = std::copy(to.begin(), to.end(), end);
      else *end++ = c;
    return;
  }
  out.clear();
  for (;;) {
    const std::size_t found = text.find(from);
    out += text.substr(0, found);
    if (found == text.npos) return;
    out += to;
    text.remove_prefix(found + from.size());
  }
}

Normalizer::Normalizer(const Component& node) { add(node); }

void Normalizer::add(const Component& node) {
  if (node.absent()) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    node.only({"normalizers"});
    for (const Component& step : node.child("normalizers").elements()) add(step);
  } else if (type == "NFC" || type == "NFKC") {
    node.only({});
    steps_.push_back({type == "NFC" ? Kind::nfc : Kind::nfkc, {}, {}});
  } else if (type == "Prepend") {
    node.only({"prepend"});
    steps_.push_back({Kind::prepend, {}, node.text("prepend", "")});
  } else if (type == "Replace") {
    node.only({"pattern", "content"});
    const Component pattern = node.child("pattern");
    pattern.only({"String"});
    steps_.push_back({Kind::replace, pattern.text("String", ""), node.text("content", "")});
    if (steps_.back().from.empty()) throw node.refuse("replaces nothing");
  } else {
    throw node.refuse("is \"" + type + "\", which is not supported");
  }
}

std::string Normalizer::describe() const {
  std::string forms;
  for (const Step& step : steps_)
    if (step.kind == Kind::nfc || step.kind == Kind::nfkc) forms += step.kind == Kind::nfc ? "NFC, " : "NFKC, ";
  return forms;
}

bool Normalizer::touches(char character) const {
  const auto in = [character](const std::string& text) { return text.find(character) != text.npos; };
  return std::any_of(steps_.begin(), steps_.end(), [&in](const Step& step) {
    return step.kind == Kind::nfkc || in(step.from) || in(step.to);  // NFKC makes spaces of other characters
  });
}

std::string_view Normalizer::apply(std::string_view text, Position position, std::string& buffer) const {
  if (text.empty()) return text;
  std::string other;
  for (const Step& step : steps_) {
    // `text` may be in `buffer`: the result is made in another string.
    if (step.kind == Kind::nfc || step.kind == Kind::nfkc) {
      const auto form = step.kind == Kind::nfc ? unicode::Form::nfc : unicode::Form::nfkc;
      const std::string_view composed = unicode::normalize(form, text, other);
      if (composed.data() == text.data()) continue;
    } else if (step.kind == Kind::prepend) {
      if (position == Position::inside) continue;
      other.assign(step.to).append(text);
    } else {
      replace_all(text, step.from, step.to, other);
    }
    buffer.swap(other);
    text = buffer;
  }
  return text;
}

}  // namespace tessera::io
