#include "jobs/cli/session/prompts.hpp"

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/file/text_file.hpp"

namespace tessera::jobs {

namespace {

std::string parse_prompt(const std::string& line, const std::string& where) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw Error(ExitCode::data, "the line is not a JSON object", where, "Write {\"prompt\": \"…\"}");
  for (const char* key : {"prompt", "text"}) {
    if (!json.contains(key)) continue;
    if (!json[key].is_string())
      throw Error(ExitCode::data, std::string("\"") + key + "\" is not a string", where, "Write {\"prompt\": \"…\"}");
    return json[key].get<std::string>();
  }
  throw Error(ExitCode::data, "the line has neither \"prompt\" nor \"text\"", where, "Write {\"prompt\": \"…\"}");
}

void read_prompt_file(const std::string& path, std::vector<std::string>& prompts) {
  std::istringstream lines(path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                       : io::read_text(path));
  const std::size_t before = prompts.size();
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    prompts.push_back(path.ends_with(".jsonl") ? parse_prompt(line, path + ":" + std::to_string(number)) : line);
  }
  if (prompts.size() == before)
    throw Error(ExitCode::data, "the file has no prompt", path == "-" ? "standard input" : path,
                "Write one prompt a line");
}

}  // namespace

std::vector<std::string> read_prompts(const Options& options, World& world) {
  if (!options.has("prompt") && !options.has("prompt_file"))
    throw Error(ExitCode::usage, "there is nothing to continue", "--prompt",
                "Give --prompt TEXT, or --prompt_file FILE");
  std::vector<std::string> prompts = options.list("prompt");
  world.run_and_agree([&] {
    if (world.rank() == 0 && options.has("prompt_file")) read_prompt_file(options.text("prompt_file"), prompts);
  });
  const auto dump = [](const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  prompts = nlohmann::json::parse(world.broadcast(dump(prompts))).get<std::vector<std::string>>();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty())
      throw Error(ExitCode::usage, strfmt("prompt %zu is empty", i + 1), "--prompt, --prompt_file",
                  "Give it a text to continue");
  }
  return prompts;
}

}  // namespace tessera::jobs
