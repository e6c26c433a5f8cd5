#pragma once
// Which ids begin and end a text, as the configuration files beside a tokenizer.json say.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::io {

struct DocumentIds {
  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> eos;  // the first one ends documents; all of them end a generated text
};

/// Of generation_config.json, else config.json (bos_token_id, eos_token_id), else tokenizer_config.json (bos_token,
/// eos_token, which `id_of` looks up). Files that are not there say nothing. Throws Error (data): a file that is no
/// JSON object, an id that is no integer.
[[nodiscard]] DocumentIds read_document_ids(const std::string& directory,
                                            const std::function<std::optional<std::int32_t>(std::string_view)>& id_of);

}  // namespace tessera::io
