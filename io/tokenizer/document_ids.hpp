// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ids that begin and end a text, from the configuration files next to a tokenizer.json.

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
/// eos_token, which `id_of` looks up). Throws Error (data): a file that is not a JSON object, an id that is not an
/// integer, a token that is no text.
[[nodiscard]] DocumentIds read_document_ids(const std::string& directory,
                                            const std::function<std::optional<std::int32_t>(std::string_view)>& id_of);

}  // namespace tessera::io
