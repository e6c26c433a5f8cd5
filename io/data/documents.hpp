#pragma once
// Where the documents of a data set end. Of a token file F.bin this is read from F.bin.documents, which `tessera
// tokenize` writes, or found by a token that ends documents.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset.hpp"

namespace tessera::io {

/// "F.bin.documents".
[[nodiscard]] std::string document_file_name(const std::string& token_file);
/// The header of such a file; the ends (int64 each) follow.
[[nodiscard]] std::string document_file_header(std::int64_t tokens, std::int64_t documents);
/// The ends in such a file. Throws Error (data): another magic, a length that contradicts the count, ends that descend
/// or exceed the number of tokens, or a last end below it (the file belongs to another token file).
[[nodiscard]] std::vector<std::int64_t> parse_document_file(std::string_view bytes, std::int64_t tokens,
                                                            const std::string& path);

/// Ends of all documents in `data`, ascending, the last one its size. `separator` is called once, and
/// only if a token file has no .documents file. Throws Error (data): as parse_document_file; a token file without a
/// separator.
[[nodiscard]] std::vector<std::int64_t> document_ends(const Dataset& data,
                                                      const std::function<std::int32_t()>& separator);

}  // namespace tessera::io
