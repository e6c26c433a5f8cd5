// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kind of a data set's file, and refusal of kinds that are not supported.

#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace tessera::io {

/// "text", "jsonl", "json" or "bin", by the file name's ending.
[[nodiscard]] std::string data_kind(const std::string& path);
/// True of names that end in .jsonl, .json, .txt or .bin: what a directory of data contributes.
[[nodiscard]] bool is_data_name(const std::string& name);
/// Throws Error (data) naming the kind of a file that is neither text nor tokens (Parquet, Arrow, archives, …),
/// recognized by its ending and first bytes.
void reject_unsupported(const std::string& path, std::string_view bytes);
/// The error for a zero byte in a text.
[[nodiscard]] Error zero_byte_error(const std::string& path, std::size_t at);

}  // namespace tessera::io
