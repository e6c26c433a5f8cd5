// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kind of a data set's file, and refusal of kinds that are not supported.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace tessera::io {

/// "text", "jsonl" (.ndjson too), "json", "csv" (.tsv too) or "bin", by the file name's ending; that of a compressed
/// file (.gz, .zst) is the one before, and that of a command "jsonl". What a file is decides its content (row_format);
/// the name of a token file alone says that it is one.
[[nodiscard]] std::string data_kind(const std::string& path);
/// "a Parquet file": the kind of a file that is neither text nor tokens, by its ending and first bytes (all, if they
/// are few: link_text.hpp); null for others.
[[nodiscard]] const char* unsupported_kind(const std::string& path, std::string_view bytes);
/// Throws Error (data) naming the kind of a file that is neither text nor tokens (Parquet, Arrow, archives, …), with
/// the command that makes JSON Lines of it.
void reject_unsupported(const std::string& path, std::string_view bytes);
/// The error for bytes that are not UTF-8 where none may be (--strict); `where`: file and line of the first.
[[nodiscard]] Error not_utf8_error(const std::string& where);
/// Throws Error (data) if more than 1 % of a file's characters are not UTF-8: it has another encoding.
void reject_other_encoding(const std::string& path, std::int64_t characters, std::int64_t invalid);
/// The error for a zero byte in a text.
[[nodiscard]] Error zero_byte_error(const std::string& path, std::size_t at);

}  // namespace tessera::io
