// Names and contents of auxiliary files.
#include "io/model/auxiliary_files.hpp"

#include <filesystem>

#include "io/file/text_file.hpp"

namespace tessera::io {

const std::vector<std::string>& auxiliary_file_names() {
  static const std::vector<std::string> names = {"tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "tokenizer.model",
                                                 "generation_config.json",
                                                 "chat_template.jinja",
                                                 "chat_template.json"};
  return names;
}

std::vector<AuxiliaryFile> read_auxiliary_files(const std::string& directory) {
  std::vector<AuxiliaryFile> found;
  for (const std::string& name : auxiliary_file_names()) {
    const std::string path = directory + "/" + name;
    std::error_code error;
    if (std::filesystem::exists(path, error)) found.push_back({name, read_text(path)});
  }
  return found;
}

}  // namespace tessera::io
