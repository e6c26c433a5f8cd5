// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/prompts.hpp"

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "io/chat/row_form.hpp"
#include "io/data/rows.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/utf8.hpp"
#include "runtime/base/log.hpp"

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

/// The prompt of a row with a conversation; its last message is to be answered.
Prompt conversation_of(Json row, const std::string& where) {
  for (const char* key : {"prompt", "text"})
    if (row.contains(key) && !row[key].is_null())
      throw io::RowError{std::string("the line has \"messages\" and \"") + key + "\""};
  io::ConversationRow made = io::read_conversation(std::move(row), io::RowForm::messages);
  const std::size_t last = made.messages.size() - 1;
  if (made.role(last) != "user" && made.role(last) != "tool")
    throw Error(ExitCode::data, "the last message is of the role " + made.role(last) + ": nothing is left to answer",
                where, "Leave out the answer at its end");
  Prompt prompt{.text = made.content(last), .unread = std::move(made.unread)};
  prompt.conversation = std::move(made);
  return prompt;
}

/// The prompt of a row with a text, which is a user's message of a conversation, or is continued as it is.
Prompt text_prompt(Json row, const std::string& where, PromptForm form) {
  const char* key = text_of(row, "prompt", where) ? "prompt" : "text";
  const std::optional<std::string> text = text_of(row, key, where);
  if (!text) throw io::RowError{"the line has neither \"prompt\", \"text\" nor \"messages\""};
  row.erase(key);
  const std::optional<std::string> system = text_of(row, "system", where);
  if (form == PromptForm::text) {
    io::require_text_alone(row);
    return {.text = *text, .unread = io::keys_with_values(row, {})};
  }
  row["messages"] = Json::array({Json{{"role", "user"}, {"content", *text}}});
  io::ConversationRow made = io::read_conversation(std::move(row), io::RowForm::messages);
  Prompt prompt{.text = *text, .system = system, .unread = std::move(made.unread)};
  prompt.conversation = std::move(made);
  return prompt;
}

Prompt parse_prompt(const std::string& line, const std::string& where, PromptForm form, std::int64_t& repaired) {
  try {
    Json row = io::parse_row(line, repaired);
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
    return conversation ? conversation_of(std::move(row), where) : text_prompt(std::move(row), where, form);
  } catch (const io::RowError& error) { throw Error(ExitCode::data, error.why, where, row_form); }
}

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

bool is_row(const std::string& line) {
  try {
    std::int64_t repaired = 0;
    return io::parse_row(line, repaired).is_object();
  } catch (const io::RowError&) { return Json::parse(line, nullptr, /*allow_exceptions=*/false).is_object(); }
}

/// JSON Lines by its name, or by its first line. Throws Error (data) for a JSON array, which lines cannot be read of.
bool holds_rows(const std::string& path, const std::string& text) {
  std::istringstream lines(text);
  std::string first;
  while (std::getline(lines, first) && is_blank(first)) {}
  if (is_row(first)) return true;
  if (first.starts_with('[') && Json::parse(text, nullptr, /*allow_exceptions=*/false).is_array())
    throw Error(ExitCode::data, "the file is one JSON array", path == "-" ? "standard input" : path,
                "Write one object a line (JSON Lines)");
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

/// The bytes of the file, without a byte-order mark.
std::string prompt_file_text(const std::string& path) {
  std::string text = path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : io::read_text(path);
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

/// With U+FFFD for what is not UTF-8.
std::string as_utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

void take_file_prompts(const std::string& path, const std::string& text, PromptForm form,
                       std::vector<Prompt>& prompts) {
  const std::string name = path == "-" ? "standard input" : path;
  if (text.find('\0') != std::string::npos || path.ends_with(".csv") || path.ends_with(".tsv"))
    throw Error(ExitCode::data, "prompts are lines of text, or JSON Lines", name, "Write one prompt a line");
  const bool rows = holds_rows(path, text);
  std::istringstream lines(text);
  const std::size_t before = prompts.size();
  std::int64_t number = 0, repaired = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (is_blank(line)) continue;
    prompts.push_back(rows ? parse_prompt(line, name + ":" + std::to_string(number), form, repaired)
                           : Prompt{.text = as_utf8(line)});
    if (!rows) repaired += io::utf8::census(line).invalid;
  }
  if (prompts.size() == before) throw Error(ExitCode::data, "the file has no prompt", name, "Write one prompt a line");
  if (repaired > 0)
    log::warn(40, strfmt("%ld places of the prompts are not UTF-8 or not JSON: each became U+FFFD or null. Correct ",
                         repaired) +
                      name);
}

}  // namespace

io::PromptText Prompt::rendered(const io::ChatTemplate& form, const std::string& system_message) const {
  const std::string& first = system ? *system : system_message;
  if (conversation) return io::render_prompt(form, *conversation, first);
  return {io::prompt_text(form, text, first), {}};
}

std::vector<Prompt> read_prompts(const Options& options, World& world, PromptForm form) {
  if (!options.has("prompt") && !options.has("prompt_file"))
    throw Error(ExitCode::usage, "there is nothing to continue", "--prompt",
                "Give --prompt TEXT, or --prompt_file FILE; on a terminal, --chat alone is a conversation (one rank)");
  std::vector<Prompt> prompts;
  for (const std::string& text : options.list("prompt")) prompts.push_back({.text = as_utf8(text)});
  if (options.has("prompt_file")) {
    std::string text;
    world.run_and_agree([&] {
      if (world.rank() == 0) text = prompt_file_text(options.text("prompt_file"));
    });
    text = world.broadcast(text);
    world.run_and_agree([&] { take_file_prompts(options.text("prompt_file"), text, form, prompts); });
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].text.empty())
      throw Error(ExitCode::usage, strfmt("prompt %zu is empty", i + 1), "--prompt, --prompt_file",
                  "Give it a text to continue");
  }
  return prompts;
}

void warn_of_unread_keys(const std::vector<Prompt>& prompts, const io::ChatTemplate* form, const std::string& system) {
  io::UnreadKeys all;
  for (const Prompt& prompt : prompts) {
    std::set<std::string> keys(prompt.unread.begin(), prompt.unread.end());
    if (form != nullptr)
      for (std::string& key : prompt.rendered(*form, system).unread) keys.insert(std::move(key));
    for (const std::string& key : keys) all.add(key);
  }
  if (all.counts.empty()) return;
  std::string named;
  for (const auto& [key, count] : all.counts)
    named += (named.empty() ? "\"" : ", \"") + key + strfmt("\" (%ld rows)", count);
  log::warn(80, "prompts have keys that are not read: " + named + (all.others > 0 ? " and more" : "") +
                    ". Rename those that are meant, or leave them out");
}

}  // namespace tessera::jobs
