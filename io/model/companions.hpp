#pragma once
// The small files that go with a model wherever it goes: its tokenizer and its settings, as Hugging Face names them.

#include <string>
#include <vector>

#include "io/checkpoint/transaction.hpp"

namespace tessera::io {

/// Of a model directory, those of companion_files() that are there, byte for byte.
/// Throws Error (data).
[[nodiscard]] std::vector<AttachmentText> read_companions(const std::string& directory);

}  // namespace tessera::io
