#pragma once
// The small files that go with a model wherever it goes: its tokenizer and its settings, as Hugging Face names them.

#include <string>
#include <vector>

#include "io/checkpoint/transaction.hpp"

namespace tessera::io {

/// Of a model directory, those of auxiliary_file_names() that are there, byte for byte.
/// Throws Error (data).
[[nodiscard]] std::vector<AuxiliaryFile> read_auxiliary_files(const std::string& directory);

}  // namespace tessera::io
