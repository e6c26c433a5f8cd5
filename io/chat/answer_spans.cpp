// SPDX-License-Identifier: Apache-2.0
// The search for answers: by markers, and for tool calls by the beginnings of the conversation.

#include "io/chat/answer_spans.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "io/data/rows.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;
constexpr auto nowhere = std::string_view::npos;

std::string marker(std::size_t answer) { return "\uE0A0tessera" + std::to_string(answer) + "\uE0A1"; }
constexpr std::string_view marker_begin = "\uE0A0tessera";
constexpr std::string_view end_of_thinking = "</think>";

/// The part of an answer that every template prints as it is: without its reasoning, which some leave out.
std::string_view kept_part(std::string_view content) {
  const std::size_t at = content.rfind(end_of_thinking);
  return trimmed(at == nowhere ? content : content.substr(at + end_of_thinking.size()));
}

/// The length of what `expected` and `text` begin with alike: all of `expected`, or up to the last complete token in <>
/// or [], or white space.
std::size_t common_tokens(std::string_view expected, std::string_view text) {
  const auto differs = std::mismatch(expected.begin(), expected.end(), text.begin(), text.end());
  if (differs.first == expected.end()) return expected.size();
  const std::string_view common = text.substr(0, static_cast<std::size_t>(differs.second - text.begin()));
  return common.find_last_of(">] \t\n") + 1;  // npos: nothing
}

/// Where in `text`, not before `from`, the longest end of `pattern` that it has ends; the first such place. By the Z
/// function of both, reversed, with a byte between them that UTF-8 does not have.
std::size_t end_of_longest_suffix(std::string_view pattern, std::string_view text, std::size_t from) {
  std::string joined(pattern.rbegin(), pattern.rend());
  joined += '\xFF';
  joined.append(text.rbegin(), text.rend());
  std::vector<std::size_t> z(joined.size(), 0);
  std::size_t best = 0, at = nowhere;
  for (std::size_t i = 1, left = 0, right = 0; i < joined.size(); ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < joined.size() && joined[z[i]] == joined[i + z[i]]) ++z[i];
    if (i + z[i] > right) left = i, right = i + z[i];
    const std::size_t end = joined.size() - i;  // in `text`
    if (i > pattern.size() && end >= from && z[i] > 0 && z[i] >= best) best = z[i], at = end;
  }
  return at;
}

RowError cannot_find(std::size_t answer, std::string_view expected, std::string_view found) {
  return {
      strfmt("the chat template does not print the text before and after answer %zu as it does with other answers: ",
             answer + 1) +
      "expected " + quoted_begin(expected) + ", rendered " + quoted_begin(found) +
      ". Mark answers in the template with {% generation %}"};
}

/// The template prints an answer that it is given not at all, twice, or in another place.
RowError cannot_mark(std::size_t answer, std::string_view given, std::string_view rendered) {
  return {strfmt("the chat template does not print answer %zu once and in its order: given ", answer + 1) +
          quoted_begin(given) + " as the answer, it rendered " + quoted_begin(rendered) +
          ". Mark answers in the template with {% generation %}"};
}

/// The template prints a message with calls otherwise at the end of a conversation.
RowError cannot_find_call(std::size_t message, std::string_view rendered) {
  return {strfmt("the tool call of message %zu cannot be found in what the chat template makes of the conversation: "
                 "rendered ",
                 message + 1) +
          quoted_begin(rendered) + ". Mark answers in the template with {% generation %}"};
}

/// Two answers share text.
RowError cannot_part(std::size_t answer) {
  return {
      strfmt("the chat template prints answers %zu and %zu so that where one ends cannot be found. Mark answers in "
             "the template with {%% generation %%}",
             answer, answer + 1)};
}

/// A message with calls as it is, without its reasoning, without its content, and without both: a template prints less
/// of it where other messages follow.
std::vector<Json> less_and_less(const Json& message) {
  std::vector<Json> all = {message, message, message, message};
  for (const std::size_t without_reasoning : {1u, 3u})
    for (const char* key : keys_of_reasoning) all[without_reasoning].erase(key);
  for (const std::size_t without_content : {2u, 3u}) all[without_content]["content"] = "";
  return all;
}

/// The beginning of a conversation, up to an answer.
struct Beginning {
  std::string plain, asked;  // without and with the generation prompt
  std::string last;          // the content of the last message
  /// Where in a rendering that goes on the answer begins, not before `from`.
  [[nodiscard]] std::size_t end_in(std::string_view text, std::size_t from) const {
    const std::size_t at = end_of_longest_suffix(plain, text, from);
    if (at == nowhere || !asked.starts_with(plain)) return at;
    return at + common_tokens(std::string_view(asked).substr(plain.size()), text.substr(at));
  }
  /// What `longer` begins with, if the template only adds something behind the last content of a conversation that ends
  /// here (DeepSeek: the end of the tools' results); else nothing.
  [[nodiscard]] std::string_view without_end(std::string_view longer) const {
    const std::size_t common = common_tokens(plain, longer), content = plain.rfind(last);
    const bool behind = !last.empty() && content != nowhere && common >= content + last.size();
    return behind ? longer.substr(0, common) : std::string_view();
  }
};

}  // namespace

std::string_view first_token(std::string_view text) {
  if (text.empty() || (text[0] != '<' && text[0] != '[')) return {};
  const std::size_t end = text.find(text[0] == '<' ? '>' : ']');
  return end == nowhere ? std::string_view() : text.substr(0, end + 1);
}

std::string quoted_begin(std::string_view text) {
  constexpr std::size_t most = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, most)) out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return out + (text.size() > most ? "…\"" : "\"");
}

std::size_t empty_think(std::string_view answer) {
  constexpr std::string_view open = "<think>", white = " \t\r\n";
  std::size_t at = std::min(answer.find_first_not_of(white), answer.size());
  if (answer.substr(at).starts_with(open))
    at = std::min(answer.find_first_not_of(white, at + open.size()), answer.size());
  if (!answer.substr(at).starts_with(end_of_thinking)) return 0;
  return std::min(answer.find_first_not_of(white, at + end_of_thinking.size()), answer.size());
}

std::string_view reasoning_of(const ConversationRow& row, std::size_t message) {
  const Json& one = row.messages[message];
  for (const char* key : keys_of_reasoning)
    if (const auto found = one.find(key); found != one.end() && found->is_string())
      if (const std::string_view text = trimmed(found->get_ref<const std::string&>()); !text.empty()) return text;
  std::string_view text = row.content(message);
  const std::size_t end = text.rfind(end_of_thinking);
  if (end == nowhere) return {};
  text = text.substr(0, end);
  constexpr std::string_view open = "<think>";
  const std::size_t begin = text.find(open);
  return trimmed(begin == nowhere ? text : text.substr(begin + open.size()));
}

std::string AnswerSearch::example() { return marker(0); }

AnswerSearch::AnswerSearch(const ConversationRow& row, std::string_view text, TurnText turn, RenderMessages render)
    : row_(row), text_(text), turn_(std::move(turn)), render_(std::move(render)) {}

std::vector<LossSpan> AnswerSearch::spans() const {
  if (text_.find(marker_begin) != nowhere) throw RowError{"the row has the characters that mark answers"};
  bool calls = false, reasoning = false;
  for (std::size_t i = 0; i < row_.messages.size(); ++i) {
    calls = calls || row_.calls(i) != nullptr;
    reasoning = reasoning || (row_.role(i) == "assistant" && !reasoning_of(row_, i).empty());
  }
  std::optional<RowError> refused;
  for (const bool calls_kept : {false, true}) {
    for (const bool reasoning_kept : {false, true}) {
      if ((calls_kept && !calls) || (reasoning_kept && !reasoning)) continue;
      try {
        return search({calls_kept, reasoning_kept});
      } catch (const RowError& error) {
        if (!refused || (calls_kept && !reasoning_kept)) refused = error;
      }
    }
  }
  throw RowError(*refused);
}

/// The length of the end of a turn that `rest` begins with: of what it has in common with the end of a conversation;
/// without that, the one token before the one that begins a turn (gpt-oss ends the last turn with another token).
std::size_t AnswerSearch::turn_end(std::string_view rest) const {
  const std::size_t known = common_tokens(turn_.closing, rest);
  const std::string_view begins = first_token(turn_.prompt);
  if (known > 0 || begins.empty() || turn_.closing.empty()) return known;
  const std::string_view other = first_token(rest);
  return rest.substr(other.size()).starts_with(begins) ? other.size() : 0;
}

/// Throws unless the template prints results of tools also without the calls before them (Gemma 4 does not).
void AnswerSearch::require_results() const {
  Json messages = row_.messages;
  std::vector<std::string> results;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    messages[i].erase("tool_calls");
    if (row_.role(i) != "tool") continue;
    results.push_back(marker(i + 1));
    messages[i]["content"] = results.back();
  }
  if (results.empty()) return;
  const std::string text = render_(messages, false);
  for (const std::string& result : results)
    if (text.find(result) == text.npos)
      throw RowError{
          "the chat template prints results of tools only with their calls. Mark answers in the template "
          "with {% generation %}"};
}

Json AnswerSearch::marked_messages(const std::vector<std::size_t>& marked, Kept kept) const {
  Json messages = row_.messages;
  for (std::size_t k = 0; k < marked.size(); ++k) {
    Json message = {{"role", "assistant"}, {"content", marker(k)}};
    if (kept.reasoning) {
      const std::string& content = row_.content(marked[k]);
      if (const std::size_t at = content.rfind(end_of_thinking); at != content.npos) {
        const std::size_t begin = content.find_first_not_of(" \t\r\n", at + end_of_thinking.size());
        message["content"] = content.substr(0, begin) + marker(k);
      }
      for (const char* key : keys_of_reasoning)
        if (const auto found = messages[marked[k]].find(key); found != messages[marked[k]].end()) message[key] = *found;
    }
    messages[marked[k]] = std::move(message);
  }
  return messages;
}

/// Where in `text`, the end of what is printed before message `to`, the messages [from, to) end; 0 if none is a call.
std::size_t AnswerSearch::end_of_calls(const Json& messages, std::size_t from, std::size_t to,
                                       std::string_view text) const {
  bool calls = false;
  for (std::size_t i = from; i < to; ++i) calls = calls || row_.role(i) == "assistant";
  if (!calls) return 0;
  const std::string before = render_(Json(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(to)), false);
  const std::size_t end = end_of_longest_suffix(before, text, 0);
  return end == nowhere ? 0 : end;
}

/// What the template prints before each marked message, up to the end of the generation prompt, and behind the last.
std::vector<std::string> AnswerSearch::texts_before(const std::vector<std::size_t>& marked, Kept kept) const {
  const Json messages = marked_messages(marked, kept);
  const std::string text = render_(messages, false);
  std::vector<std::string> between;
  std::size_t at = 0;
  for (std::size_t k = 0; k < marked.size(); ++k) {
    const std::string mark = marker(k);
    const std::size_t found = text.find(mark, at);
    if (found == text.npos || text.find(mark, found + 1) != text.npos) throw cannot_mark(k, mark, text.substr(at));
    const std::string_view own = std::string_view(text).substr(at, found - at);
    const std::size_t prompt = turn_.prompt.empty() ? nowhere : own.rfind(turn_.prompt);
    std::size_t end = found;
    if (prompt != nowhere) {
      end = at + prompt + turn_.prompt.size();
      // That may be the prompt of a call that is not marked; then the answer begins behind the messages before it.
      const std::size_t first = end_of_calls(messages, k == 0 ? 0 : marked[k - 1] + 1, marked[k], own);
      if (prompt < first) end = at + first + common_tokens(turn_.prompt, own.substr(first));
    } else if (const std::string_view reasoning = reasoning_of(row_, marked[k]);
               kept.reasoning && !reasoning.empty() && own.find(reasoning) != nowhere) {
      throw cannot_mark(k, mark, text.substr(at));  // it is printed, and is part of the answer
    }
    between.push_back(text.substr(at, end - at));
    at = found + mark.size();
  }
  between.push_back(text.substr(at));
  return between;
}

/// The spans of these messages.
std::vector<LossSpan> AnswerSearch::match(const std::vector<std::size_t>& marked, Kept kept) const {
  if (marked.empty()) return {};
  const std::vector<std::string> between = texts_before(marked, kept);
  std::vector<LossSpan> spans;
  if (!text_.starts_with(between[0])) throw cannot_find(0, between[0], text_);
  std::size_t begin = between[0].size();
  for (std::size_t k = 0; k < marked.size(); ++k) {
    const std::string& next = between[k + 1];
    const bool last = k + 1 == marked.size();
    const std::string_view answer = kept_part(row_.content(marked[k]));
    const auto holds = [&](std::size_t end) { return text_.substr(begin, end - begin).find(answer) != nowhere; };
    std::size_t end = nowhere;
    if (last) {
      if (text_.ends_with(next) && text_.size() - next.size() >= begin) end = text_.size() - next.size();
      if (end != nowhere && !holds(end)) end = nowhere;
    } else {
      end = text_.find(next, begin);
      while (end != nowhere && !holds(end)) end = text_.find(next, end + 1);
    }
    if (end == nowhere) throw cannot_find(k, std::string(answer) + next, text_.substr(begin));
    const bool at_end = last && marked[k] + 1 == row_.messages.size();
    spans.push_back({begin, end + (at_end ? next.size() : turn_end(text_.substr(end)))});
    begin = end + next.size();
  }
  return spans;
}

LossSpan AnswerSearch::find_call(std::size_t message, std::size_t from, std::size_t to) const {
  if (message == 0) throw cannot_find_call(message, text_);
  Json messages = Json::array();
  for (std::size_t i = 0; i < message; ++i) messages.push_back(row_.messages[i]);
  const Beginning before = {render_(messages, false), render_(messages, true), row_.content(message - 1)};
  const std::string_view region = text_.substr(0, to);
  const std::size_t begin = before.end_in(region, from);
  if (begin == nowhere) throw cannot_find_call(message, text_.substr(from));
  const std::string_view rest = text_.substr(begin);
  messages.push_back(nullptr);
  for (Json& one : less_and_less(row_.messages[message])) {
    messages.back() = std::move(one);
    const std::string made = render_(messages, false);
    const std::size_t own = before.end_in(made, 0);
    if (own == nowhere) continue;
    std::string_view turn = std::string_view(made).substr(own);
    if (!turn.empty() && rest.starts_with(turn)) return {begin, begin + turn.size()};
    if (const std::string_view same = before.without_end(made); !same.empty()) {
      const std::size_t at = end_of_longest_suffix(same, region, from);
      const std::string_view other = std::string_view(made).substr(same.size());
      if (at != nowhere && !other.empty() && text_.substr(at).starts_with(other)) return {at, at + other.size()};
    }
    if (turn_.closing.empty() || !turn.ends_with(turn_.closing)) continue;
    turn.remove_suffix(turn_.closing.size());
    if (!turn.empty() && rest.starts_with(turn))
      return {begin, begin + turn.size() + turn_end(rest.substr(turn.size()))};
  }
  throw cannot_find_call(message, rest);
}

std::vector<LossSpan> AnswerSearch::search(Kept kept) const {
  std::vector<std::size_t> answers, marked;  // messages
  bool called = false;
  for (std::size_t i = 0; i < row_.messages.size(); ++i) {
    if (row_.role(i) != "assistant") continue;
    answers.push_back(i);
    called = called || row_.calls(i) != nullptr;
    if (!kept.calls || row_.calls(i) == nullptr) marked.push_back(i);
  }
  if (called && !kept.calls) require_results();
  const std::vector<LossSpan> found = match(marked, kept);
  std::vector<LossSpan> spans;
  std::size_t next = 0;  // of `marked`
  for (const std::size_t message : answers) {
    if (next < marked.size() && marked[next] == message) {
      spans.push_back(found[next++]);
      continue;
    }
    const std::size_t from = spans.empty() ? 0 : spans.back().end;
    spans.push_back(find_call(message, from, next < found.size() ? found[next].begin : text_.size()));
  }
  for (std::size_t k = 1; k < spans.size(); ++k)
    if (spans[k].begin < spans[k - 1].end) throw cannot_part(k);
  for (LossSpan& span : spans) span.begin += empty_think(text_.substr(span.begin, span.end - span.begin));
  return spans;
}

}  // namespace tessera::io
