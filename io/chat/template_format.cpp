// SPDX-License-Identifier: Apache-2.0
// Rendering, and what of a conversation the template leaves out.

#include "io/chat/template_format.hpp"

#include <algorithm>
#include <string_view>

#include "io/data/rows.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;

/// Throws unless the names of the functions that a message calls are in `printed`.
void require_calls(const ConversationRow& row, std::size_t message, std::string_view printed) {
  const Json* calls = row.calls(message);
  if (calls == nullptr) return;
  for (const Json& call : *calls) {
    const auto& name = call["function"]["name"].get_ref<const std::string&>();
    if (printed.find(name) == printed.npos)
      throw RowError{strfmt("the chat template does not print the tool call of message %zu (%s): rendered ",
                            message + 1, name.c_str()) +
                     quoted_begin(printed)};
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

/// One span for each of so many answers: where there are more, those that touch are parts of one (its end, for
/// example).
std::vector<jinja::Span> marked_answers(const std::vector<jinja::Span>& spans, std::size_t answers) {
  std::vector<jinja::Span> joined;
  for (const jinja::Span& span : spans) {
    if (spans.size() > answers && !joined.empty() && joined.back().end_byte == span.begin_byte)
      joined.back().end = span.end, joined.back().end_byte = span.end_byte;
    else joined.push_back(span);
  }
  if (joined.size() != answers)
    throw RowError{strfmt("the chat template marks %zu answers with {%% generation %%}, and the conversation has %zu",
                          spans.size(), answers)};
  return joined;
}

/// Where in `closing`, the text behind the last answer, another turn begins that the template prints at the end of
/// every conversation; its size if there is none. `printed`: a conversation that goes on, up to the same answer;
/// `behind`: the rest of it. A turn begins with the token that stands first in the text.
std::size_t trailer_in(const std::string& closing, const std::string& printed, const std::string& behind) {
  if (behind.starts_with(closing)) return closing.size();
  std::size_t first = printed.find(first_token(closing)), begin = closing.size();
  for (std::size_t at = 1; at < closing.size() && behind.starts_with(closing.substr(0, at)); ++at) {
    const std::string_view token = first_token(std::string_view(closing).substr(at));
    if (token.empty() || printed.find(token) >= first || !behind.ends_with(closing.substr(at))) continue;
    first = printed.find(token);
    begin = at;
  }
  return begin;
}

/// Removes a key that ConversationRow::unknown names from all messages.
void remove_key(Json& messages, const std::string& path) {
  const std::string key = path.substr(path.rfind('.') + 1);
  const bool of_function = path.starts_with("messages[].tool_calls[].function."),
             of_call = path.starts_with("messages[].tool_calls[].");
  for (Json& message : messages) {
    if (!of_call) message.erase(key);
    else if (message.contains("tool_calls"))
      for (Json& call : message["tool_calls"]) (of_function ? call["function"] : call).erase(key);
  }
}

/// For each role whose messages have this key: the messages, these ones without it. A tool's result has that of its
/// call.
std::vector<Json> without_key(const ConversationRow& row, const char* key) {
  std::vector<Json> all;
  for (const char* role : {"system", "developer", "user", "assistant"}) {
    Json messages = row.messages;
    std::size_t removed = 0;
    for (std::size_t i = 0; i < messages.size(); ++i)
      if (row.role(i) == role) removed += messages[i].erase(key);
    if (removed > 0) all.push_back(std::move(messages));
  }
  return all;
}

/// Messages that are no answers, and whose content does not stand in `text` behind that of the messages before: the
/// template leaves them out, or prints them changed or elsewhere.
std::vector<std::size_t> missing_messages(const ConversationRow& row, const std::string& text) {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0, at = 0; i < row.messages.size(); ++i) {
    const std::string_view content = trimmed(row.content(i));
    const std::size_t found = text.find(content, at);
    if (found != text.npos) at = found + content.size();
    else if (row.role(i) != "assistant") missing.push_back(i);
  }
  return missing;
}

}  // namespace

bool prints_python(const ConversationRow& row, const std::string& text) {
  return std::any_of(row.argument_texts.begin(), row.argument_texts.end(), [&](const ArgumentsText& one) {
    const Json& arguments = (*row.calls(one.message))[one.call]["function"]["arguments"];
    const std::string python = jinja::python_repr(arguments);
    return python.find('\'') != python.npos && text.find(python) != text.npos;
  });
}

std::vector<std::string> unread_keys(const jinja::Template& used, const ConversationRow& row, const std::string& text,
                                     const std::function<std::string(const Json& messages)>& render) {
  std::vector<std::string> keys;
  for (const std::string& path : row.unknown)
    if (!used.mentions(std::string_view(path).substr(path.rfind('.') + 1))) keys.push_back(path);
  const auto is_same = [&](const Json& messages) {
    try {
      return render(messages) == text;
    } catch (const RowError&) { return false; }
  };
  if (!keys.empty()) {
    Json messages = row.messages;
    for (const std::string& path : keys) remove_key(messages, path);
    if (!is_same(messages)) keys.clear();  // it prints messages as JSON, for example
  }
  for (const char* key : {"name", "tool_call_id"}) {  // templates read them of calls, or of one role
    const std::string path = std::string("messages[].") + key;
    if (!used.mentions(key) || std::ranges::find(row.unknown, path) == row.unknown.end()) continue;
    const std::vector<Json> without = without_key(row, key);
    if (std::ranges::any_of(without, is_same)) keys.push_back(path);
  }
  for (const auto& [name, value] : row.variables.items())
    if (!used.reads(name)) keys.push_back("chat_template_kwargs." + name);
  return keys;
}

TemplateFormat::TemplateFormat(ChatTemplate chat, LossRule rule, std::string system)
    : chat_(std::move(chat)), rule_(rule), system_(std::move(system)) {
  for (const bool with_system : {false, true}) {  // some templates demand a system message
    ConversationRow row;
    if (with_system) row.add("system", "system");
    row.add("user", "question");
    row.add("assistant", AnswerSearch::example());
    if (!turn_) turn_ = turn_around(row, row.messages.size() - 1);
  }
}

/// What the template prints around message `answer`, by the messages before it; absent if it refuses these.
std::optional<TurnText> TemplateFormat::turn_around(const ConversationRow& row, std::size_t answer) const {
  Json messages = Json::array();
  for (std::size_t i = 0; i < answer; ++i) messages.push_back(row.messages[i]);
  const auto text = [&](bool prompt) -> std::optional<std::string> {
    try {
      return rendered(row, messages, prompt).text;
    } catch (const RowError&) {  // the template wants other conversations
      return std::nullopt;
    }
  };
  std::optional<std::string> without, with;
  if (answer > 0) without = text(false), with = text(true);
  messages.push_back({{"role", "assistant"}, {"content", AnswerSearch::example()}});
  const std::optional<std::string> closed = text(false);
  if (!closed) return std::nullopt;
  TurnText turn;
  if (without && with && with->starts_with(*without)) turn.prompt = with->substr(without->size());
  const std::size_t at = closed->rfind(AnswerSearch::example());
  if (at == closed->npos) return turn;
  turn.closing = closed->substr(at + AnswerSearch::example().size());
  messages.push_back({{"role", "user"}, {"content", "question"}});
  if (const std::optional<std::string> longer = text(false)) {
    const std::size_t answered = longer->rfind(AnswerSearch::example());
    if (answered == longer->npos) return turn;
    const std::size_t end = answered + AnswerSearch::example().size();
    const std::size_t own = trailer_in(turn.closing, longer->substr(0, end), longer->substr(end));
    turn.trailer = turn.closing.substr(own);
    turn.closing.resize(own);
    if (turn.prompt.empty()) turn.prompt = turn.trailer;  // the prompt of an answer, which is always printed
  }
  return turn;
}

jinja::Rendered TemplateFormat::rendered(const ConversationRow& row, const Json& messages,
                                         bool add_generation_prompt) const {
  Conversation conversation;
  conversation.messages = messages;
  conversation.tools = row.tools;
  conversation.variables = row.variables;
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

/// True if the text of a message can be any other and `text`, made of the row, is the same.
bool TemplateFormat::leaves_out_message(const ConversationRow& row, const std::string& text) const {
  const std::vector<std::size_t> missing = missing_messages(row, text);
  const auto other = [](std::size_t message) { return AnswerSearch::example() + std::to_string(message) + "."; };
  const auto with_others = [&](const std::vector<std::size_t>& replaced) -> std::optional<std::string> {
    Json messages = row.messages;
    for (const std::size_t i : replaced) messages[i]["content"] = other(i);
    try {
      return rendered(row, messages, false).text;
    } catch (const RowError&) { return std::nullopt; }
  };
  if (missing.empty()) return false;
  const std::string all = with_others(missing).value_or("");  // shows the most of them with one rendering
  return std::ranges::any_of(missing,
                             [&](std::size_t i) { return all.find(other(i)) == all.npos && with_others({i}) == text; });
}

std::vector<LossSpan> TemplateFormat::answers(const ConversationRow& row, const jinja::Rendered& whole) const {
  std::size_t answers = 0, first = row.messages.size();
  for (std::size_t i = row.messages.size(); i-- > 0;)
    if (row.role(i) == "assistant") ++answers, first = i;
  if (chat_.used(!row.tools.is_null()).marks_generation()) {
    const std::vector<jinja::Span> marked = marked_answers(whole.generation, answers);
    std::vector<LossSpan> spans;
    for (const jinja::Span& span : marked) {
      const std::string_view answer =
          std::string_view(whole.text).substr(span.begin_byte, span.end_byte - span.begin_byte);
      spans.push_back({span.begin_byte + empty_think(answer), span.end_byte});
    }
    return spans;
  }
  // Tools, and variables such as enable_thinking, may change the generation prompt.
  std::optional<TurnText> turn = turn_;
  if (!turn || !row.variables.empty() || !row.tools.is_null())
    if (std::optional<TurnText> own = turn_around(row, first)) turn = std::move(own);
  const TurnText around = turn.value_or(TurnText{});
  const auto without_trailer = [&](const Json& messages, bool prompt) {
    std::string text = rendered(row, messages, prompt).text;
    const std::string end = around.trailer + (prompt && around.prompt != around.trailer ? around.prompt : "");
    if (!around.trailer.empty() && text.ends_with(end))
      text.replace(text.size() - end.size(), end.size(), prompt ? around.prompt : "");
    return text;
  };
  std::string_view text = whole.text;
  if (text.ends_with(around.trailer)) text.remove_suffix(around.trailer.size());
  const AnswerSearch search(row, text, around, without_trailer);
  return search.spans();
}

ChatText TemplateFormat::render_row(const ConversationRow& row) const {
  std::vector<std::optional<double>> weights;  // of answers
  std::vector<std::size_t> messages;           // that are answers
  for (std::size_t i = 0; i < row.messages.size(); ++i) {
    if (row.role(i) != "assistant") continue;
    weights.push_back(row.weights[i]);
    messages.push_back(i);
  }
  if (weights.empty()) throw RowError{"the row has no assistant message"};
  jinja::Rendered whole = rendered(row, row.messages, false);
  if (prints_python(row, whole.text)) throw RowError{"the chat template prints arguments of a call as Python's dict"};
  ChatText made;
  const bool named = std::any_of(weights.begin(), weights.end(), [](const auto& weight) { return weight.has_value(); });
  std::vector<LossSpan> spans;
  if (rule_ != LossRule::all || named) spans = answers(row, whole);
  const bool marks = chat_.used(!row.tools.is_null()).marks_generation();  // perhaps not what is printed of reasoning
  for (std::size_t k = 0, before = 0; k < messages.size(); ++k) {
    const std::string_view text = whole.text;
    const auto answer = spans.empty() ? text : text.substr(spans[k].begin, spans[k].end - spans[k].begin);
    require_calls(row, messages[k], answer);
    const auto turn = marks && !spans.empty() ? text.substr(before, spans[k].end - before) : answer;
    if (turn.find(reasoning_of(row, messages[k])) == turn.npos) made.lacks_reasoning = true;
    if (!spans.empty()) before = spans[k].end;
  }
  for (std::size_t k = 0; k < spans.size(); ++k) {
    const bool counts = rule_ == LossRule::last_round ? k + 1 == spans.size()
                                                      : rule_ == LossRule::all || messages[k] >= row.prompt_messages;
    spans[k].weight = weights[k].value_or(counts ? 1 : 0);
  }
  made.loss = rule_ == LossRule::all ? complement(spans, whole.text.size()) : std::move(spans);
  made.unread = unread_keys(chat_.used(!row.tools.is_null()), row, whole.text,
                            [&](const Json& all) { return rendered(row, all, false).text; });
  made.text = std::move(whole.text);
  made.lacks_message = leaves_out_message(row, made.text);
  made.lacks_tools = !row.tools.is_null() && !chat_.used(true).reads("tools");
  return made;
}

ChatText TemplateFormat::render(const ConversationRow& given) const {
  ConversationRow row = given;
  if (!system_.empty()) row.set_system(system_);
  if (row.argument_texts.empty()) return render_row(row);
  try {
    return render_row(row);
  } catch (const RowError& error) {
    try {
      return render_row(row.with_argument_texts());
    } catch (const RowError&) { throw error; }
  }
}

std::uint64_t TemplateFormat::hash() const {
  std::uint64_t hash = chat_.hash();
  hash = hash64(system_, hash);
  return hash64(std::to_string(static_cast<int>(rule_)), hash);
}

}  // namespace tessera::io
