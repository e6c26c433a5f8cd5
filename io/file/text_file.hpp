// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small text files: read at once with a size limit, replaced atomically.

#include <string>

namespace tessera::io {

/// The file's bytes. Throws Error (data): not there, a directory, larger than `limit` bytes.
[[nodiscard]] std::string read_text(const std::string& path, std::size_t limit = 64u << 20);
/// Writes PATH.tmp, syncs it and renames it: a reader sees the old text or the new one. Throws Error (data).
void write_text(const std::string& path, const std::string& text);

}  // namespace tessera::io
