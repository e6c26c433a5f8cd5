#pragma once
// Auxiliary files of a model: its tokenizer and its settings, named as Hugging Face names them.

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

}  // namespace tessera::io
