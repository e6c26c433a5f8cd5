#pragma once
// llm.c's .bin token files: a header of 256 int32, then the ids (docs/formats.md).

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io {

/// Ids of 31 bits: what a token file may hold.
inline constexpr std::int64_t largest_vocab = std::int64_t{1} << 31;

/// The ids in a .bin file.
struct TokenFileLayout {
  int width = 2;               // bytes of an id: 2 (magic 20240520, version 1) or 4 (magic 20240801, version 7)
  const char* data = nullptr;  // count · width bytes of the file
  std::int64_t count = 0;
};

/// The 1024-byte header for `count` ids (1 or more) of `width` bytes (2 or 4). A count beyond int32 takes a form that
/// only Tessera reads (docs/formats.md).
[[nodiscard]] std::string token_file_header(int width, std::int64_t count);

/// Checks a whole .bin file. Throws Error (data): too short for a header, another magic (named if known) or version, a
/// count that is not positive, and a length that contradicts the count.
[[nodiscard]] TokenFileLayout check_token_file(std::string_view bytes, const std::string& path);

/// The largest id. Throws Error (data) at the first id beyond 31 bits.
[[nodiscard]] std::int32_t largest_token(const TokenFileLayout& layout, const std::string& path);

/// Copies ids [first, first + count) to out. Throws Error (data) at the first id that is not below `vocab` (at most
/// 2^31), with its place in the file at `path`; out is then undefined. Allocates nothing otherwise.
void copy_tokens(const TokenFileLayout& layout, const std::string& path, std::int64_t vocab, std::int64_t first,
                 std::int64_t count, std::int32_t* out);

}  // namespace tessera::io
