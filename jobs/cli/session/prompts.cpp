// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/prompts.hpp"

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/chat/row_form.hpp"
#include "io/corpus/chat_turn.hpp"
#include "io/data/rows.hpp"
#include "io/file/text_file.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* row_form = "Write {\"prompt\": \"…\"}, or {\"messages\": […]}";

/// The string of a key; null: the row does not have it.
std::optional<std::string> text_of(const Json& row, const char* key, const std::string& where) {
  if (!row.contains(key) || row[key].is_null()) return std::nullopt;
  if (!row[key].is_string())
    throw Error(ExitCode::data, std::string("\"") + key + "\" is not a string", where, row_form);
  return row[key].get<std::string>();
}

/// The conversation of a row that has one; its last message is to be answered.
Prompt conversation_of(const Json& row, const std::string& where) {
  constexpr const char* form = "Write {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}";
  for (const char* key : {"prompt", "text"})
    if (row.contains(key) && !row[key].is_null())
      throw Error(ExitCode::data, std::string("the line has \"messages\" and \"") + key + "\"", where, form);
  try {
    io::ConversationRow made = io::read_conversation(row, io::RowForm::messages);
    const std::size_t last = made.messages.size() - 1;
    if (made.role(last) != "user" && made.role(last) != "tool")
      throw Error(ExitCode::data, "the last message is of the role " + made.role(last) + ": nothing is left to answer",
                  where, "Leave out the answer at its end");
    std::string text = made.content(last);
    return {.text = std::move(text), .conversation = std::move(made)};
  } catch (const io::RowError& error) { throw Error(ExitCode::data, error.why, where, form); }
}

Prompt parse_prompt(const std::string& line, const std::string& where, PromptForm form) {
  const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) throw Error(ExitCode::data, "the line is not a JSON object", where, row_form);
  const bool conversation = io::form_of(row) == io::RowForm::messages;
  if (conversation && form == PromptForm::text)
    throw Error(ExitCode::data, "the line has messages: a prompt alone is continued as it is", where,
                "Give generate --chat");
  for (const char* key : {"system", "tools"})
    if (form == PromptForm::text && row.contains(key) && !row[key].is_null())
      throw Error(ExitCode::data,
                  std::string("the line has ") + (key[0] == 's' ? "a \"system\" message" : "\"tools\"") +
                      ": a prompt alone is continued as it is",
                  where, "Give generate --chat, or leave it out");
  if (conversation) return conversation_of(row, where);
  std::optional<std::string> prompt = text_of(row, "prompt", where);
  if (!prompt) prompt = text_of(row, "text", where);
  if (!prompt)
    throw Error(ExitCode::data, "the line has neither \"prompt\", \"text\" nor \"messages\"", where, row_form);
  Prompt made{.text = std::move(*prompt), .system = text_of(row, "system", where)};
  if (row.contains("tools") && !row["tools"].is_null()) {
    try {
      made.conversation.emplace().add("user", made.text);
      made.conversation->tools = io::read_tools(row["tools"]);
      if (made.system) made.conversation->set_system(*made.system);
    } catch (const io::RowError& error) { throw Error(ExitCode::data, error.why, where, row_form); }
  }
  return made;
}

Json to_json(const std::vector<Prompt>& prompts) {
  Json all = Json::array();
  for (const Prompt& prompt : prompts)
    all.push_back({prompt.text, prompt.system ? Json(*prompt.system) : Json(),
                   prompt.conversation ? prompt.conversation->messages : Json(),
                   prompt.conversation ? prompt.conversation->tools : Json()});
  return all;
}

std::vector<Prompt> from_json(const Json& all) {
  std::vector<Prompt> prompts;
  for (const Json& entry : all) {
    Prompt& prompt = prompts.emplace_back();
    prompt.text = entry[0].get<std::string>();
    if (!entry[1].is_null()) prompt.system = entry[1].get<std::string>();
    if (entry[2].is_null()) continue;
    prompt.conversation.emplace();
    prompt.conversation->messages = entry[2];
    prompt.conversation->weights.resize(entry[2].size());
    prompt.conversation->tools = entry[3];
  }
  return prompts;
}

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

/// JSON Lines by its name, or by its first line. Throws Error (data) for a JSON array, which lines cannot be read of.
bool holds_rows(const std::string& path, const std::string& text) {
  std::istringstream lines(text);
  std::string first;
  while (std::getline(lines, first) && is_blank(first)) {}
  if (Json::parse(first, nullptr, /*allow_exceptions=*/false).is_object()) return true;
  if (first.starts_with('[') && Json::parse(text, nullptr, /*allow_exceptions=*/false).is_array())
    throw Error(ExitCode::data, "the file is one JSON array", path == "-" ? "standard input" : path,
                "Write one object a line (JSON Lines)");
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

void read_prompt_file(const std::string& path, PromptForm form, std::vector<Prompt>& prompts) {
  const std::string text =
      path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : io::read_text(path);
  const std::string name = path == "-" ? "standard input" : path;
  if (text.find('\0') != std::string::npos || path.ends_with(".csv") || path.ends_with(".tsv"))
    throw Error(ExitCode::data, "prompts are lines of text, or JSON Lines", name, "Write one prompt a line");
  const bool rows = holds_rows(path, text);
  std::istringstream lines(text);
  const std::size_t before = prompts.size();
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (is_blank(line)) continue;
    prompts.push_back(rows ? parse_prompt(line, name + ":" + std::to_string(number), form) : Prompt{.text = line});
  }
  if (prompts.size() == before) throw Error(ExitCode::data, "the file has no prompt", name, "Write one prompt a line");
}

}  // namespace

std::string Prompt::rendered(const io::ChatTemplate& form, const std::string& system_message) const {
  if (conversation) return io::prompt_text(form, *conversation, system_message);
  return io::prompt_text(form, text, system.value_or(system_message));
}

std::vector<Prompt> read_prompts(const Options& options, World& world, PromptForm form) {
  if (!options.has("prompt") && !options.has("prompt_file"))
    throw Error(ExitCode::usage, "there is nothing to continue", "--prompt",
                "Give --prompt TEXT, or --prompt_file FILE; on a terminal, --chat alone is a conversation (one rank)");
  std::vector<Prompt> prompts;
  for (const std::string& text : options.list("prompt")) prompts.push_back({.text = text});
  world.run_and_agree([&] {
    if (world.rank() == 0 && options.has("prompt_file")) read_prompt_file(options.text("prompt_file"), form, prompts);
  });
  const auto dump = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); };
  prompts = from_json(Json::parse(world.broadcast(dump(to_json(prompts)))));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].text.empty())
      throw Error(ExitCode::usage, strfmt("prompt %zu is empty", i + 1), "--prompt, --prompt_file",
                  "Give it a text to continue");
  }
  return prompts;
}

}  // namespace tessera::jobs
