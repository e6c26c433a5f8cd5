// SPDX-License-Identifier: Apache-2.0
// Rendering, and the search for answers.

#include "io/chat/template_format.hpp"

#include <algorithm>
#include <string_view>

#include "io/data/rows.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;

std::string marker(std::size_t answer) { return "\uE0A0tessera" + std::to_string(answer) + "\uE0A1"; }
constexpr std::string_view marker_begin = "\uE0A0tessera";

std::string quoted(std::string_view text) {
  constexpr std::size_t most = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, most)) out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return out + (text.size() > most ? "…\"" : "\"");
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// The part of an answer that every template prints as it is: without its reasoning, which some leave out.
std::string_view kept_part(std::string_view content) {
  constexpr std::string_view end_of_thinking = "</think>";
  const std::size_t at = content.rfind(end_of_thinking);
  return trimmed(at == content.npos ? content : content.substr(at + end_of_thinking.size()));
}

/// The length of the end of a turn that `rest` begins with: of what it has in common with the end of a conversation,
/// up to the last complete token in <> or [], or white space.
std::size_t turn_end(std::string_view closing, std::string_view rest) {
  const auto differs = std::mismatch(closing.begin(), closing.end(), rest.begin(), rest.end());
  if (differs.first == closing.end()) return closing.size();
  const std::string_view common = rest.substr(0, static_cast<std::size_t>(differs.second - rest.begin()));
  return common.find_last_of(">] \t\n") + 1;  // npos: nothing
}

/// The empty think block at the beginning of an answer.
std::size_t empty_think(std::string_view answer) {
  constexpr std::string_view open = "<think>", close = "</think>";
  constexpr std::string_view white = " \t\r\n";
  if (!answer.starts_with(open)) return 0;
  const std::size_t end = answer.find_first_not_of(white, open.size());
  if (end == answer.npos || !answer.substr(end).starts_with(close)) return 0;
  return std::min(answer.find_first_not_of(white, end + close.size()), answer.size());
}

RowError cannot_find(std::size_t answer, std::string_view expected, std::string_view found) {
  return {
      strfmt("the chat template does not print the text before and after answer %zu as it does with other answers: ",
             answer + 1) +
      "expected " + quoted(expected) + ", rendered " + quoted(found) +
      ". Mark answers in the template with {% generation %}"};
}

/// The template prints an answer that it is given not at all, twice, or in another place.
RowError cannot_mark(std::size_t answer, std::string_view given, std::string_view rendered) {
  return {strfmt("the chat template does not print answer %zu once and in its order: given ", answer + 1) +
          quoted(given) + " as the answer, it rendered " + quoted(rendered) +
          ". Mark answers in the template with {% generation %}"};
}

/// Throws unless the names of the functions that a message calls are in `printed`.
void require_calls(const ConversationRow& row, std::size_t message, std::string_view printed) {
  const auto calls = row.messages[message].find("tool_calls");
  if (calls == row.messages[message].end()) return;
  for (const Json& call : *calls) {
    const auto& name = call["function"]["name"].get_ref<const std::string&>();
    if (printed.find(name) == printed.npos)
      throw RowError{strfmt("the chat template does not print the tool call of message %zu (%s): rendered ",
                            message + 1, name.c_str()) +
                     quoted(printed)};
  }
}

/// 26 July 2024, noon: the date that Llama's templates fall back to.
std::chrono::system_clock::time_point fixed_date() {
  return std::chrono::system_clock::time_point(std::chrono::seconds(1721995200));
}

/// Spans of everything else.
std::vector<LossSpan> complement(const std::vector<LossSpan>& spans, std::size_t size) {
  std::vector<LossSpan> rest;
  std::size_t at = 0;
  for (const LossSpan& span : spans) {
    if (at < span.begin) rest.push_back({at, span.begin, 1, false});
    rest.push_back(span);
    at = span.end;
  }
  if (at < size) rest.push_back({at, size, 1, false});
  return rest;
}

}  // namespace

TemplateFormat::TemplateFormat(ChatTemplate chat, LossRule rule, std::string system)
    : chat_(std::move(chat)), rule_(rule), system_(std::move(system)) {
  const Json user = {{"role", "user"}, {"content", "question"}};
  const Json answer = {{"role", "assistant"}, {"content", marker(0)}};
  const auto without = probe(Json::array({user}), false), with = probe(Json::array({user}), true),
             closed = probe(Json::array({user, answer}), false);
  if (without && with && with->starts_with(*without)) prompt_ = with->substr(without->size());
  if (!closed) return;
  const std::size_t at = closed->rfind(marker(0));
  if (at != closed->npos) closing_ = closed->substr(at + marker(0).size());
}

std::optional<std::string> TemplateFormat::probe(const Json& messages, bool prompt) const {
  try {
    return rendered(messages, nullptr, prompt).text;
  } catch (const RowError&) {  // the template wants other conversations
    return std::nullopt;
  }
}

jinja::Rendered TemplateFormat::rendered(const Json& messages, const Json& tools, bool add_generation_prompt) const {
  Conversation conversation;
  conversation.messages = messages;
  conversation.tools = tools;
  conversation.add_generation_prompt = add_generation_prompt;
  jinja::RenderOptions options;
  options.clock = fixed_date;
  try {
    return chat_.render(conversation, options);
  } catch (const jinja::TemplateError& error) {
    if (error.past_limit()) throw;  // the template is at fault, and would be for every row
    throw RowError{std::string("the chat template refuses the conversation: ") + error.what()};
  } catch (const Error& error) {
    throw RowError{std::string("the chat template refuses the conversation: ") + error.what()};
  }
}

std::vector<std::string> TemplateFormat::texts_between(const ConversationRow& row) const {
  Json messages = Json::array();
  std::size_t answers = 0;
  for (std::size_t i = 0; i < row.messages.size(); ++i) {
    if (row.role(i) != "assistant") messages.push_back(row.messages[i]);
    else messages.push_back({{"role", "assistant"}, {"content", marker(answers++)}});
  }
  const std::string text = rendered(messages, row.tools, false).text;
  std::vector<std::string> between;
  std::size_t at = 0;
  for (std::size_t k = 0; k < answers; ++k) {
    const std::string mark = marker(k);
    const std::size_t found = text.find(mark, at);
    if (found == text.npos || text.find(mark, found + 1) != text.npos) throw cannot_mark(k, mark, text.substr(at));
    between.push_back(text.substr(at, found - at));
    at = found + mark.size();
  }
  between.push_back(text.substr(at));
  return between;
}

std::vector<LossSpan> TemplateFormat::answers(const ConversationRow& row, const jinja::Rendered& whole) const {
  std::vector<std::size_t> messages;  // of assistants
  for (std::size_t i = 0; i < row.messages.size(); ++i)
    if (row.role(i) == "assistant") messages.push_back(i);
  std::vector<LossSpan> spans;
  if (chat_.used(!row.tools.is_null()).marks_generation()) {
    if (whole.generation.size() != messages.size())
      throw RowError{strfmt("the chat template marks %zu answers with {%% generation %%}, and the conversation has %zu",
                            whole.generation.size(), messages.size())};
    for (const jinja::Span& span : whole.generation) spans.push_back({span.begin_byte, span.end_byte});
    return spans;
  }
  const std::string_view text = whole.text;
  if (text.find(marker_begin) != text.npos) throw RowError{"the row has the characters that mark answers"};
  std::vector<std::string> between = texts_between(row);
  for (std::size_t k = 0; k < messages.size(); ++k) {  // an answer begins behind the generation prompt
    const std::size_t at = prompt_.empty() ? std::string::npos : between[k].rfind(prompt_);
    if (at != std::string::npos) between[k].resize(at + prompt_.size());
  }
  if (!text.starts_with(between[0])) throw cannot_find(0, between[0], text);
  std::size_t begin = between[0].size();
  for (std::size_t k = 0; k < messages.size(); ++k) {
    const std::string& next = between[k + 1];
    const bool last = k + 1 == messages.size();
    const std::string_view answer = kept_part(row.content(messages[k]));
    const auto holds = [&](std::size_t end) { return text.substr(begin, end - begin).find(answer) != text.npos; };
    std::size_t end = text.npos;
    if (last) {
      if (text.ends_with(next) && text.size() - next.size() >= begin) end = text.size() - next.size();
      if (end != text.npos && !holds(end)) end = text.npos;
    } else {
      end = text.find(next, begin);
      while (end != text.npos && !holds(end)) end = text.find(next, end + 1);
    }
    if (end == text.npos) throw cannot_find(k, std::string(answer) + next, text.substr(begin));
    const bool at_end = last && messages[k] + 1 == row.messages.size();
    const std::size_t suffix = at_end ? next.size() : turn_end(closing_, text.substr(end));
    const std::size_t skipped = empty_think(text.substr(begin, end - begin));
    spans.push_back({begin + skipped, end + suffix});
    begin = end + next.size();
  }
  return spans;
}

ChatText TemplateFormat::render(const ConversationRow& given) const {
  ConversationRow row = given;
  if (!system_.empty()) row.set_system(system_);
  std::vector<std::optional<double>> weights;  // of answers
  std::vector<std::size_t> messages;           // that are answers
  for (std::size_t i = 0; i < row.messages.size(); ++i) {
    if (row.role(i) != "assistant") continue;
    weights.push_back(row.weights[i]);
    messages.push_back(i);
  }
  if (weights.empty()) throw RowError{"the row has no assistant message"};
  jinja::Rendered whole = rendered(row.messages, row.tools, false);
  ChatText made;
  const bool named = std::any_of(weights.begin(), weights.end(), [](const auto& weight) { return weight.has_value(); });
  std::vector<LossSpan> spans;
  if (rule_ != LossRule::all || named) spans = answers(row, whole);
  for (std::size_t k = 0; k < messages.size(); ++k) {
    const std::string_view text = whole.text;
    const auto answer = spans.empty() ? text : text.substr(spans[k].begin, spans[k].end - spans[k].begin);
    require_calls(row, messages[k], answer);
  }
  for (std::size_t k = 0; k < spans.size(); ++k) {
    const bool counts = rule_ != LossRule::last_round || k + 1 == spans.size();
    spans[k].weight = weights[k].value_or(counts ? 1 : 0);
  }
  made.loss = rule_ == LossRule::all ? complement(spans, whole.text.size()) : std::move(spans);
  made.text = std::move(whole.text);
  made.lacks_tools = !row.tools.is_null() && !chat_.used(true).reads("tools");
  return made;
}

std::uint64_t TemplateFormat::hash() const {
  std::uint64_t hash = chat_.hash();
  hash = hash64(system_, hash);
  return hash64(std::to_string(static_cast<int>(rule_)), hash);
}

}  // namespace tessera::io
