// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/prompts.hpp"

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/file/text_file.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* row_form = "Write {\"prompt\": \"…\"}";

/// The string of a key; null: the row does not have it.
std::optional<std::string> text_of(const nlohmann::json& row, const char* key, const std::string& where) {
  if (!row.contains(key) || row[key].is_null()) return std::nullopt;
  if (!row[key].is_string())
    throw Error(ExitCode::data, std::string("\"") + key + "\" is not a string", where, row_form);
  return row[key].get<std::string>();
}

Prompt parse_prompt(const std::string& line, const std::string& where, bool chat) {
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) throw Error(ExitCode::data, "the line is not a JSON object", where, row_form);
  std::optional<std::string> prompt = text_of(row, "prompt", where);
  if (!prompt) prompt = text_of(row, "text", where);
  if (!prompt) throw Error(ExitCode::data, "the line has neither \"prompt\" nor \"text\"", where, row_form);
  std::optional<std::string> system = text_of(row, "system", where);
  if (system && !chat)
    throw Error(ExitCode::data, "the line has a \"system\" message: a prompt alone is continued as it is", where,
                "Give generate --chat, or leave it out");
  return {std::move(*prompt), std::move(system)};
}

nlohmann::json to_json(const std::vector<Prompt>& prompts) {
  nlohmann::json all = nlohmann::json::array();
  for (const Prompt& prompt : prompts)
    all.push_back({prompt.text, prompt.system ? nlohmann::json(*prompt.system) : nlohmann::json()});
  return all;
}

std::vector<Prompt> from_json(const nlohmann::json& all) {
  std::vector<Prompt> prompts;
  for (const nlohmann::json& pair : all) {
    prompts.push_back({pair[0].get<std::string>(), {}});
    if (!pair[1].is_null()) prompts.back().system = pair[1].get<std::string>();
  }
  return prompts;
}

void read_prompt_file(const std::string& path, bool chat, std::vector<Prompt>& prompts) {
  std::istringstream lines(path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                       : io::read_text(path));
  const std::size_t before = prompts.size();
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    prompts.push_back(path.ends_with(".jsonl") ? parse_prompt(line, path + ":" + std::to_string(number), chat)
                                               : Prompt{line, {}});
  }
  if (prompts.size() == before)
    throw Error(ExitCode::data, "the file has no prompt", path == "-" ? "standard input" : path,
                "Write one prompt a line");
}

}  // namespace

std::vector<Prompt> read_prompts(const Options& options, World& world) {
  if (!options.has("prompt") && !options.has("prompt_file"))
    throw Error(ExitCode::usage, "there is nothing to continue", "--prompt",
                "Give --prompt TEXT, or --prompt_file FILE");
  std::vector<Prompt> prompts;
  for (const std::string& text : options.list("prompt")) prompts.push_back({text, {}});
  world.run_and_agree([&] {
    if (world.rank() == 0 && options.has("prompt_file"))
      read_prompt_file(options.text("prompt_file"), options.has("chat") && options.flag("chat"), prompts);
  });
  const auto dump = [](const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  prompts = from_json(nlohmann::json::parse(world.broadcast(dump(to_json(prompts)))));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].text.empty())
      throw Error(ExitCode::usage, strfmt("prompt %zu is empty", i + 1), "--prompt, --prompt_file",
                  "Give it a text to continue");
  }
  return prompts;
}

}  // namespace tessera::jobs
