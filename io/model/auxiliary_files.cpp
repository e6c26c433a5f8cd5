#include "io/model/auxiliary_files.hpp"

#include <filesystem>

#include "io/file/text_file.hpp"
#include "io/model/model_files.hpp"

namespace tessera::io {

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
