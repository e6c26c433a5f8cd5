// SPDX-License-Identifier: Apache-2.0
#pragma once
// Auxiliary files of a model: its tokenizer and its settings, named as Hugging Face names them.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::io {

/// A file by name ("additional_chat_templates/rag.jinja") and content.
struct AuxiliaryFile {
  std::string name, text;
  std::string source = {};  // the file that has the content, in place of `text`: of large ones
};

/// Names of tokenizer files, generation_config.json and chat templates.
[[nodiscard]] const std::vector<std::string>& auxiliary_file_names();
/// The files of these names in a directory that may hold others too, byte for byte. Throws Error (data).
[[nodiscard]] std::vector<AuxiliaryFile> read_auxiliary_files(const std::string& directory);

/// What belongs to a model beside its weights.
struct ModelAuxiliaryFiles {
  std::vector<AuxiliaryFile> files;   // config.json first
  std::vector<std::string> left_out;  // weights in another form, states of a training, links to directories
};
/// Every file of a model directory and the directories in it, but weights, hidden files, and what a run of this program
/// writes beside the model (STATUS, logging.jsonl, checkpoint-N, …). Throws Error (data): no config.json.
[[nodiscard]] ModelAuxiliaryFiles read_model_auxiliary_files(const std::string& directory);
/// The same in the list alone; names what is left out in a warning (W090).
[[nodiscard]] std::vector<AuxiliaryFile> all_auxiliary_files(const std::string& directory);
/// Writes it into a directory, durably but for the directory's own entries. Throws Error (data).
void write_auxiliary_file(const std::string& directory, const AuxiliaryFile& file);

/// Adds a file, in place of one of its name.
void replace(std::vector<AuxiliaryFile>& files, const AuxiliaryFile& file);
/// The generation_config.json of a model directory ("" for none) with `id` among its eos_token_id. `known`: those of a
/// directory that has no such file, or whose file names none. Throws Error (data): not a JSON object.
[[nodiscard]] AuxiliaryFile generation_config(const std::string& directory, const std::vector<std::int32_t>& known,
                                              std::int32_t id);

}  // namespace tessera::io
