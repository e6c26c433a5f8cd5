// SPDX-License-Identifier: Apache-2.0
// Reads two keys of generation_config.json, config.json or tokenizer_config.json.

#include "io/tokenizer/document_ids.hpp"

#include <nlohmann/json.hpp>

#include "io/tokenizer/tokenizer_config.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

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

}  // namespace

DocumentIds read_document_ids(const std::string& directory,
                              const std::function<std::optional<std::int32_t>(std::string_view)>& id_of) {
  DocumentIds ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = directory + "/" + name;
    const nlohmann::json whole = object_in(path);
    const nlohmann::json text = whole.value("text_config", nlohmann::json());  // of a model of text and images
    for (const nlohmann::json* object : {&whole, &text}) {
      if (!object->is_object()) continue;
      if (ids.eos.empty()) ids.eos = ids_under(*object, "eos_token_id", path);
      const std::vector<std::int32_t> bos = ids_under(*object, "bos_token_id", path);
      if (!ids.bos && !bos.empty()) ids.bos = bos.front();
    }
  }
  if (ids.bos && !ids.eos.empty()) return ids;
  const TokenizerConfig tokenizer(directory);
  const auto id_of_token = [&](const char* key) {
    const std::string token = tokenizer.token(key);
    return token.empty() ? std::nullopt : id_of(token);
  };
  if (!ids.bos) ids.bos = id_of_token("bos_token");
  if (ids.eos.empty())
    if (const std::optional<std::int32_t> eos = id_of_token("eos_token")) ids.eos.push_back(*eos);
  return ids;
}

}  // namespace tessera::io
