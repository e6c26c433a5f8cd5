#pragma once
// What a file of a data set is, told by its name and its first bytes; and what cannot be one.

#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace tessera::io {

/// "text", "jsonl" or "bin", by the ending.
[[nodiscard]] std::string data_kind(const std::string& path);
/// Throws Error (data) for what is no text and no tokens, by name: Parquet, Arrow, archives, …;
/// told by ending and by first bytes.
void reject_unsupported(const std::string& path, std::string_view bytes);
/// The error for a text with a zero byte.
[[nodiscard]] Error zero_byte_error(const std::string& path, std::size_t at);

}  // namespace tessera::io
