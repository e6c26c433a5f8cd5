// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the text of a safetensors index. An accepted one has sorted names, each once, and plain file names.

#include <cstdlib>

#include "io/model/safetensors_index.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const auto index = io::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "input");
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < index.entries.size(); ++i) {
      const auto& [tensor, file] = index.entries[i];
      if (i > 0 && index.entries[i - 1].tensor >= tensor) std::abort();
      if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos || file.find('\0') != file.npos)
        std::abort();
      bytes += tensor.size() + file.size();
    }
    if (bytes > size || index.files().size() > index.entries.size()) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
