// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files compressed by gzip or zstd: recognized by their first bytes, and decompressed as a stream.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::io {

enum class Compression : unsigned char { none, gzip, zstd };
/// By the magic number of the first bytes.
[[nodiscard]] Compression compression_of(std::string_view bytes);

/// The first `most` decompressed bytes of a file, fewer if it ends before. Throws Error (data) as decompress does.
[[nodiscard]] std::string decompressed_head(const std::string& path, std::size_t most);
/// Decompresses a file to another one, which is created; all members or frames that follow one another, in little
/// memory. `may_write(bytes)` is asked before more are written, and throws if they are too many. Throws Error (data):
/// truncated, damaged, something else behind the end, a full disk; the other file is then removed.
void decompress(const std::string& path, const std::string& to, const std::function<void(std::uint64_t)>& may_write);

}  // namespace tessera::io
