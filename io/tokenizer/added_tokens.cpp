// SPDX-License-Identifier: Apache-2.0
// A trie over the tokens' bytes, and the checks of adjacent characters.

#include "io/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

bool word_ends(std::string_view text) {
  return !text.empty() && unicode::is_word(utf8::read(utf8::before(text.data() + text.size())).code);
}
bool word_begins(std::string_view text) { return !text.empty() && unicode::is_word(utf8::read(text.data()).code); }

/// Bytes of white space at the beginning, and where the white space at the end begins, which is not before `least`.
std::size_t space_at_front(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const utf8::Point point = utf8::read(text.data() + at);
    if (unicode::classify(point.code) != unicode::space) break;
    at += static_cast<std::size_t>(point.length);
  }
  return at;
}
std::size_t space_at_back(std::string_view text, std::size_t least) {
  const char* at = text.data() + text.size();
  while (at > text.data() + least) {
    const char* one = utf8::before(at);
    if (unicode::classify(utf8::read(one).code) != unicode::space) break;
    at = one;
  }
  return static_cast<std::size_t>(at - text.data());
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view spelling) {
  if (spelling.empty()) return;
  std::uint32_t node = 0;
  for (const char c : spelling) {
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
    const auto [found, is_new] = edges_.try_emplace(edge, static_cast<std::uint32_t>(ends_.size()));
    if (is_new) ends_.push_back(-1);
    node = found->second;
  }
  if (ends_[node] >= 0) return;
  ends_[node] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(spelling[0])] = true;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  Match match;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ends_[node] >= 0) match = {i + 1 - at, &tokens_[static_cast<std::size_t>(ends_[node])]};
  }
  return match;
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Section>& sections) const {
  std::size_t done = 0;  // the text before it is in sections
  std::size_t at = 0;
  std::size_t stripped =
      0;  // end of the white space that the last token took, which a white-space token may match again
  while (!tokens_.empty()) {
    while (at < text.size() && !starts_[static_cast<unsigned char>(text[at])]) ++at;
    if (at >= text.size()) break;
    const Match match = longest_at(text, at);
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + match.length;
    at = end;  // the search continues after the match, also if it is rejected
    if (match.token->single_word && (word_ends(text.substr(0, begin)) || word_begins(text.substr(end)))) continue;
    if (match.token->lstrip) begin = std::min(std::max(space_at_back(text.substr(0, begin), done), done), end);
    if (match.token->rstrip) end = stripped = end <= stripped ? stripped : end + space_at_front(text.substr(end));
    if (done < begin) sections.push_back({text.substr(done, begin - done), -1});
    sections.push_back({text.substr(begin, end - begin), match.token->id});
    done = end;
  }
  if (done != text.size()) sections.push_back({text.substr(done), -1});
}

}  // namespace tessera::io
