// SPDX-License-Identifier: Apache-2.0
// Reads two keys of generation_config.json, config.json or tokenizer_config.json.

#include "io/tokenizer/document_ids.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

nlohmann::json read_object(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nlohmann::json::object();
  nlohmann::json parsed = nlohmann::json::parse(read_text(path), nullptr, false);
  if (!parsed.is_object()) throw Error(ExitCode::data, "this is not a JSON object", path, "Fetch the file again");
  return parsed;
}

/// An id, or a list of them; none if the key is absent or null.
std::vector<std::int32_t> ids_under(const nlohmann::json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  std::vector<std::int32_t> ids;
  const auto add = [&](const nlohmann::json& value) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 0x7FFFFFFFu)
      throw Error(ExitCode::data, std::string(key) + " is not a token id", path, "Write an id, or a list of ids");
    ids.push_back(value.get<std::int32_t>());
  };
  if (found->is_array())
    for (const auto& value : *found) add(value);
  else add(*found);
  return ids;
}

std::optional<std::int32_t> named_under(const nlohmann::json& object, const char* key,
                                        const std::function<std::optional<std::int32_t>(std::string_view)>& id_of) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  const nlohmann::json& name = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  return name.is_string() ? id_of(name.get<std::string>()) : std::nullopt;
}

}  // namespace

DocumentIds read_document_ids(const std::string& directory,
                              const std::function<std::optional<std::int32_t>(std::string_view)>& id_of) {
  DocumentIds ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = directory + "/" + name;
    const nlohmann::json whole = read_object(path);
    const nlohmann::json text = whole.value("text_config", nlohmann::json());  // of a model of text and images
    for (const nlohmann::json* object : {&whole, &text}) {
      if (!object->is_object()) continue;
      if (ids.eos.empty()) ids.eos = ids_under(*object, "eos_token_id", path);
      const std::vector<std::int32_t> bos = ids_under(*object, "bos_token_id", path);
      if (!ids.bos && !bos.empty()) ids.bos = bos.front();
    }
  }
  const nlohmann::json object = read_object(directory + "/tokenizer_config.json");
  if (!ids.bos) ids.bos = named_under(object, "bos_token", id_of);
  if (ids.eos.empty()) {
    const std::optional<std::int32_t> eos = named_under(object, "eos_token", id_of);
    if (eos) ids.eos.push_back(*eos);
  }
  return ids;
}

}  // namespace tessera::io
