// SPDX-License-Identifier: Apache-2.0
// Recognizes the two answers by their keys.
#include "io/chat/pair_row.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "io/data/row_json.hpp"
#include "io/data/rows.hpp"

namespace tessera::io {

namespace {

using Json = nlohmann::ordered_json;

bool has_value(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && !found->is_null();
}

/// A list of messages in a cell of a table is a text; a text that is another list stays one.
Json take_list(Json& row, const char* key) {
  Json value = take_key(row, {key});
  if (!value.is_string()) return value;
  if (std::optional<Json> parsed = parse_json_text(value.get_ref<const std::string&>());
      parsed && parsed->is_array() && !parsed->empty() && parsed->front().is_object())
    return std::move(*parsed);
  return value;
}

/// The conversation `base` with the last answer replaced by a text.
ConversationRow with_answer(const ConversationRow& base, const std::string& answer) {
  ConversationRow row = base;
  row.unread.clear();  // the keys of a row are counted once
  const std::size_t last = row.messages.size() - 1;
  if (row.role(last) != "assistant")
    throw RowError{"the last message is not the assistant's, and \"rejected_response\" is in the place of its answer"};
  row.messages[last] = {{"role", "assistant"}, {"content", answer}};
  std::erase_if(row.argument_texts, [&](const ArgumentsText& text) { return text.message == last; });
  return row;
}

/// The same but for the messages. `system`: the row's.
ConversationRow with_messages(const ConversationRow& base, Json messages, const Json& system) {
  ConversationRow row = read_messages(std::move(messages));
  if (system.is_string() && !system.get_ref<const std::string&>().empty()) row.set_system(system.get<std::string>());
  row.tools = base.tools;
  row.variables = base.variables;
  return row;
}

void require_answer(const ConversationRow& row, const char* which) {
  if (row.messages.empty() || row.role(row.messages.size() - 1) != "assistant")
    throw RowError{std::string("the ") + which + " conversation does not end with an answer of the assistant"};
  if (row.messages.size() < 2)
    throw RowError{std::string("the ") + which + " conversation has no message before its answer",
                   "Give its prompt under \"prompt\""};
}

/// The two answers are to one prompt.
void require_one_prompt(const PairRow& pair) {
  const ConversationRow &one = pair.chosen, &other = pair.rejected;
  const std::size_t last = one.messages.size() - 1, other_last = other.messages.size() - 1;
  for (std::size_t i = 0; i < std::max(last, other_last); ++i)
    if (i >= last || i >= other_last || !same_message(one.messages[i], other.messages[i]) ||
        one.weights[i] != other.weights[i])
      throw RowError{strfmt("the messages before the two answers differ: message %zu", i + 1),
                     "Give both answers the same messages before them"};
}

/// ms-swift's forms.
PairRow read_rejected(Json row) {
  if (has_value(row, "rejected_response") && has_value(row, "rejected_messages"))
    throw RowError{"the row has \"rejected_response\" and \"rejected_messages\""};
  const Json response = take_key(row, {"rejected_response"});
  Json messages = take_list(row, "rejected_messages");
  if (!form_of(row) || form_of(row) == RowForm::text)
    throw RowError{"the row has a rejected answer, and no conversation (\"messages\") with the chosen one"};
  const RowForm form = *form_of(row);
  const Json system = row.value("system", Json());
  PairRow pair{.chosen = read_conversation(std::move(row), form), .rejected = {}, .text = {}};
  if (!messages.is_null()) {
    pair.rejected = with_messages(pair.chosen, std::move(messages), system);
  } else {
    if (!response.is_string()) throw RowError{"\"rejected_response\" is not a string"};
    pair.rejected = with_answer(pair.chosen, response.get<std::string>());
  }
  return pair;
}

/// Texts without a prompt: it is what they begin with alike. A blank before the first difference belongs to the answers
/// (TRL's extract_prompt).
TextPair without_prompt(const std::string& chosen, const std::string& rejected) {
  const auto differ = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  auto common = static_cast<std::size_t>(differ.first - chosen.begin());
  while (common > 0 && common < chosen.size() && (static_cast<unsigned char>(chosen[common]) & 0xC0) == 0x80) --common;
  if (common > 0 && chosen[common - 1] == ' ') --common;
  return {chosen.substr(0, common), chosen.substr(common), rejected.substr(common)};
}

/// True if the messages of an answer begin with those of the prompt, or have a user's message, which is then the
/// prompt, a text. Blanks around it do not count.
bool begins_with(const Json& answer, const Json& prompt) {
  if (continues(answer, prompt)) return true;
  if (!answer.is_array() || !prompt.is_string()) return false;
  for (const Json& message : answer) {
    if (!message.is_object() || message.value("role", Json()) != "user") continue;
    const Json content = message.value("content", Json());
    if (content.is_string() &&
        trimmed(content.get_ref<const std::string&>()) == trimmed(prompt.get_ref<const std::string&>()))
      return true;
    throw RowError{"\"prompt\" is not the first message of the user in \"chosen\" and \"rejected\"",
                   "Drop one of the two"};
  }
  return false;
}

/// Keys that hold a prompt in other forms of rows.
constexpr const char* other_prompts[] = {"messages", "conversations", "conversation", "instruction",
                                         "query",    "question",      "input"};

bool is_filled(const Json& row, const char* key) {
  if (!has_value(row, key)) return false;
  const Json& value = row.at(key);
  return value.is_string() ? !value.get_ref<const std::string&>().empty() : !value.is_array() || !value.empty();
}

/// Beside "chosen" and "rejected" they would be left out. Messages that are the chosen ones once more say nothing new.
void refuse_other_prompts(const Json& row, const Json& chosen, bool has_prompt) {
  if (is_filled(row, "history"))
    throw RowError{"the row has \"history\" beside \"chosen\" and \"rejected\"",
                   "Give its turns as messages of \"prompt\""};
  for (const char* key : other_prompts) {
    if (!is_filled(row, key) || row.at(key) == chosen) continue;
    const std::string name = std::string("\"") + key + "\"";
    if (has_prompt) throw RowError{"the row has " + name + " beside \"prompt\", \"chosen\" and \"rejected\""};
    throw RowError{"the row has " + name + " beside \"chosen\" and \"rejected\", whose prompt is \"prompt\"",
                   std::string("Name it: --columns '{\"") + key + "\": \"prompt\"}'"};
  }
}

Json answer_list(Json prompt, const Json& answer) {
  if (prompt.is_null() || begins_with(answer, prompt)) prompt = Json::array();
  if (prompt.is_string()) prompt = Json::array({{{"role", "user"}, {"content", prompt}}});
  if (answer.is_string()) prompt.push_back({{"role", "assistant"}, {"content", answer}});
  else
    for (const Json& message : answer) prompt.push_back(message);
  return prompt;
}

/// TRL's forms.
PairRow read_chosen(Json row) {
  for (const auto& [key, other] : {std::pair{"chosen", "rejected"}, std::pair{"rejected", "chosen"}})
    if (!has_value(row, key))
      throw RowError{std::string("the row has \"") + other + "\" and no \"" + key + "\": a pair has both"};
  const Json chosen = take_list(row, "chosen"), rejected = take_list(row, "rejected");
  Json prompt = take_list(row, "prompt");
  const auto is_known = [](const Json& answer) { return answer.is_string() || answer.is_array(); };
  if (!is_known(chosen) || !is_known(rejected) || chosen.type() != rejected.type())
    throw RowError{"\"chosen\" and \"rejected\" are not two texts, or two lists of messages"};
  if (!prompt.is_null() && !is_known(prompt)) throw RowError{"\"prompt\" is not a text or a list of messages"};
  refuse_other_prompts(row, chosen, !prompt.is_null());
  PairRow pair;
  if (chosen.is_string() && prompt.is_null()) {
    pair.text = without_prompt(chosen.get<std::string>(), rejected.get<std::string>());
    pair.has_template = false;
    for (std::string& key : keys_with_values(row, {})) pair.chosen.unread.push_back(std::move(key));
    return pair;
  }
  if (chosen.is_string() && prompt.is_string())
    pair.text = {prompt.get<std::string>(), chosen.get<std::string>(), rejected.get<std::string>()};
  const Json system = row.value("system", Json());
  Json rest = std::move(row);
  rest["messages"] = answer_list(prompt, chosen);
  pair.chosen = read_conversation(std::move(rest), RowForm::messages);
  pair.rejected = with_messages(pair.chosen, answer_list(std::move(prompt), rejected), system);
  return pair;
}

/// Of a cell of a table, too, which is a text.
bool take_label(Json& row) {
  const Json label = take_key(row, {"label"});
  if (label.is_boolean()) return label.get<bool>();
  std::string word = label.is_string() ? label.get<std::string>() : label.is_number_integer() ? label.dump() : "";
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  throw RowError{"\"label\" is not true or false: expected true, false, 1 or 0, or one of them as a text"};
}

/// "prompt" and "completion", lists of messages or texts, become "messages"; two texts are also `text`, unless they
/// have a history, with which they are a query and a response.
void join_completion(Json& row, PairRow& made) {
  for (const char* key : other_prompts)
    if (is_filled(row, key))
      throw RowError{std::string("the row has \"") + key + "\" beside \"prompt\" and \"completion\"",
                     "Drop one of the two"};
  if (is_filled(row, "history")) {
    if (!row.at("prompt").is_string() || !row.at("completion").is_string())
      throw RowError{"the row has \"history\" beside \"prompt\" and \"completion\", which are not texts",
                     "Give its turns as messages of \"prompt\""};
    return;
  }
  Json prompt = take_list(row, "prompt");
  const Json completion = take_list(row, "completion");
  const auto is_known = [](const Json& part) { return part.is_string() || part.is_array(); };
  if (!is_known(prompt) || !is_known(completion))
    throw RowError{"\"prompt\" and \"completion\" are not texts or lists of messages"};
  if (prompt.is_string() && completion.is_string())
    made.text = {prompt.get<std::string>(), completion.get<std::string>(), completion.get<std::string>()};
  row["messages"] = answer_list(std::move(prompt), completion);
}

/// The loss of a labelled answer begins where it does, so no other message has one.
void require_last_answer(const ConversationRow& row) {
  for (std::size_t i = 0; i + 1 < row.weights.size(); ++i)
    if (row.weights[i].value_or(0) != 0)
      throw RowError{"message " + std::to_string(i + 1) +
                         " has a loss of its own, and that of a labelled row is of its last answer",
                     "Drop its \"loss\", \"loss_scale\" or \"weight\""};
}

}  // namespace

bool is_pair(const Json& row) {
  return has_value(row, "rejected_response") || has_value(row, "rejected_messages") || has_value(row, "chosen") ||
         has_value(row, "rejected");
}

PairRow read_pair(Json row) {
  const bool swift = has_value(row, "rejected_response") || has_value(row, "rejected_messages");
  if (!swift && !is_pair(row)) {
    std::string keys;
    for (const auto& [key, value] : row.items())
      if (keys.size() < 200) keys += " \"" + key.substr(0, 40) + "\"";
    throw RowError{
        "the row has no rejected answer: expected \"chosen\" and \"rejected\", or a conversation with "
        "\"rejected_response\" or \"rejected_messages\"; its keys:" +
        keys};
  }
  PairRow pair = swift ? read_rejected(std::move(row)) : read_chosen(std::move(row));
  if (!pair.has_template) return pair;
  require_answer(pair.chosen, "chosen");
  require_answer(pair.rejected, "rejected");
  require_one_prompt(pair);
  return pair;
}

float take_margin(Json& row) {
  const Json margin = take_key(row, {"margin"});
  if (margin.is_null()) return 0;
  std::optional<Json> number = margin.is_string() ? parse_json_text(margin.get_ref<const std::string&>()) : margin;
  const auto value = static_cast<float>(number && number->is_number() ? number->get<double>() : NAN);
  if (!std::isfinite(value)) throw RowError{"\"margin\" is not a number"};
  return value;
}

PairRow read_labelled(Json row) {
  if (is_pair(row)) {
    if (has_value(row, "label")) throw RowError{"the row has \"label\" and two answers", "Drop one of the two"};
    PairRow pair = read_pair(std::move(row));
    require_last_answer(pair.chosen);
    require_last_answer(pair.rejected);
    return pair;
  }
  if (!has_value(row, "label"))
    throw RowError{"the row has no \"label\" that says whether its answer is wanted, and no second answer"};
  const bool is_wanted = take_label(row);
  PairRow made{.chosen = {}, .rejected = {}, .text = {}, .has_chosen = is_wanted, .has_rejected = !is_wanted};
  if (has_value(row, "prompt") && has_value(row, "completion")) join_completion(row, made);
  if (!form_of(row) || form_of(row) == RowForm::text)
    throw RowError{"the row has a label, and no conversation (\"messages\", or \"prompt\" and \"completion\")"};
  const RowForm form = *form_of(row);
  ConversationRow& answer = is_wanted ? made.chosen : made.rejected;
  answer = read_conversation(std::move(row), form);
  require_answer(answer, "labelled");
  require_last_answer(answer);
  return made;
}

}  // namespace tessera::io
