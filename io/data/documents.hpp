#pragma once
// Where the documents of a data set end: known of text and .jsonl; of token files told by F.bin.documents, which
// `tessera tokenize` writes beside F.bin, else by a token that ends them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset.hpp"

namespace tessera::io {

/// "F.bin.documents".
[[nodiscard]] std::string document_file_name(const std::string& token_file);
/// The bytes before the ends of `documents` documents (int64 each) of a file of `tokens` tokens.
[[nodiscard]] std::string document_file_header(std::int64_t tokens, std::int64_t documents);
/// The ends in the bytes of such a file. Throws Error (data): another magic, a length that is not its count's, ends
/// that descend or pass the tokens, and tokens beyond the last one: it was made for another token file.
[[nodiscard]] std::vector<std::int64_t> parse_document_file(std::string_view bytes, std::int64_t tokens,
                                                            const std::string& path);

/// Ends of all documents in `data`, ascending, the last one its size. `separator` is asked once, and only if a token
/// file has no file of its documents beside it. Throws Error (data): what parse_document_file refuses; a token file
/// without a separator.
[[nodiscard]] std::vector<std::int64_t> document_ends(const Dataset& data,
                                                      const std::function<std::int32_t()>& separator);

}  // namespace tessera::io
