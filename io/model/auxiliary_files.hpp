// SPDX-License-Identifier: Apache-2.0
#pragma once
// Auxiliary files of a model: its tokenizer and its settings, named as Hugging Face names them.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::io {

/// A small file, by name and content.
struct AuxiliaryFile {
  std::string name, text;
};

/// Names of tokenizer files, generation_config.json and chat templates.
[[nodiscard]] const std::vector<std::string>& auxiliary_file_names();
/// The auxiliary files of a model directory, byte for byte. Throws Error (data).
[[nodiscard]] std::vector<AuxiliaryFile> read_auxiliary_files(const std::string& directory);

/// Adds a file, in place of one of its name.
void replace(std::vector<AuxiliaryFile>& files, const AuxiliaryFile& file);
/// The generation_config.json of a model directory ("" for none) with `id` among its eos_token_id. `known`: those of a
/// directory that has no such file, or whose file names none. Throws Error (data): not a JSON object.
[[nodiscard]] AuxiliaryFile generation_config(const std::string& directory, const std::vector<std::int32_t>& known,
                                              std::int32_t id);

}  // namespace tessera::io
