#include "io/model/companions.hpp"

#include <filesystem>

#include "io/config/json_file.hpp"
#include "io/model/model_files.hpp"

namespace tessera::io {

std::vector<AttachmentText> read_companions(const std::string& directory) {
  std::vector<AttachmentText> found;
  for (const std::string& name : companion_files()) {
    const std::string path = directory + "/" + name;
    std::error_code error;
    if (std::filesystem::exists(path, error)) found.push_back({name, read_text(path)});
  }
  return found;
}

}  // namespace tessera::io
