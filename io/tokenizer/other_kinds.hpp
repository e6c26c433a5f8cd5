// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokenizers of other kinds than a tokenizer.json: recognized, and refused with the command that converts them.

#include <string>
#include <string_view>

namespace tessera::io {

/// The command by which transformers makes a directory's tokenizer.json.
[[nodiscard]] std::string tokenizer_conversion(const std::string& directory);
/// The command by which transformers tokenizes text files into a token file, for models that have no merges.
[[nodiscard]] std::string tokenization_elsewhere(const std::string& directory);
/// The first file in a directory that belongs to a tokenizer of a kind that is not read; "" if there is none.
[[nodiscard]] std::string unread_tokenizer(const std::string& directory);
/// Throws Error (data) if the content of `file` is a SentencePiece model or a tiktoken vocabulary.
void refuse_other_tokenizers(std::string_view content, const std::string& file);

}  // namespace tessera::io
