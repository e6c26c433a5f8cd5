// SPDX-License-Identifier: Apache-2.0
// Names and contents of auxiliary files.
#include "io/model/auxiliary_files.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

const std::vector<std::string>& auxiliary_file_names() {
  static const std::vector<std::string> names = {"tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "tokenizer.model",
                                                 "tekken.json",
                                                 "spiece.model",
                                                 "sentencepiece.bpe.model",
                                                 "vocab.txt",
                                                 "preprocessor_config.json",
                                                 "video_preprocessor_config.json",
                                                 "processor_config.json",
                                                 "generation_config.json",
                                                 "chat_template.jinja",
                                                 "chat_template.json"};
  return names;
}

namespace {

constexpr const char* templates_directory = "additional_chat_templates";

/// The chat templates that transformers keeps apart, by name.
std::vector<AuxiliaryFile> more_templates(const std::string& directory) {
  std::vector<AuxiliaryFile> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory + "/" + templates_directory, none))
    if (const std::string name = entry.path().filename().string(); name.ends_with(".jinja"))
      found.push_back({std::string(templates_directory) + "/" + name, read_text(entry.path().string())});
  std::ranges::sort(found, {}, &AuxiliaryFile::name);
  return found;
}

}  // namespace

std::vector<AuxiliaryFile> read_auxiliary_files(const std::string& directory) {
  std::vector<AuxiliaryFile> found = more_templates(directory);
  for (const std::string& name : auxiliary_file_names()) {
    const std::string path = directory + "/" + name;
    std::error_code error;
    if (std::filesystem::exists(path, error)) found.push_back({name, read_text(path)});
  }
  return found;
}

void replace(std::vector<AuxiliaryFile>& files, const AuxiliaryFile& file) {
  std::erase_if(files, [&](const AuxiliaryFile& other) { return other.name == file.name; });
  files.push_back(file);
}

AuxiliaryFile generation_config(const std::string& directory, const std::vector<std::int32_t>& known, std::int32_t id) {
  const char* const name = "generation_config.json";
  const std::string path = directory + "/" + name;
  std::error_code error;
  Json config = Json::object();
  if (!directory.empty() && std::filesystem::exists(path, error)) config = Json::parse(read_text(path), nullptr, false);
  if (!config.is_object()) throw Error(ExitCode::data, "the file is not a JSON object", path);
  Json ids = config.contains("eos_token_id") ? config["eos_token_id"] : Json(nullptr);
  if (ids.is_null()) ids = known;
  if (!ids.is_array()) ids = Json::array({ids});
  if (std::find(ids.begin(), ids.end(), Json(id)) == ids.end()) ids.push_back(id);
  config["eos_token_id"] = ids.size() == 1 ? ids[0] : ids;
  return {name, config.dump(2) + "\n"};
}

}  // namespace tessera::io
