// SPDX-License-Identifier: Apache-2.0
#pragma once
// llm.c's .bin token files: a header of 256 int32, then the ids (docs/formats.md).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

/// Ids of 31 bits: what a token file may hold.
inline constexpr std::int64_t largest_vocab = std::int64_t{1} << 31;

/// What the ids of a token file must be.
struct TokenRule {
  std::int64_t vocab = largest_vocab;     // each is below
  std::vector<std::int32_t> images = {};  // each is none of these, which stand for images
};

/// How ids are stored. llm.c's files have u16 (magic 20240520, version 1) or u32 (magic 20240801, version 7).
enum class IdType : unsigned char { u8, i8, i16, u16, i32, u32, i64 };
/// Bytes of an id.
[[nodiscard]] constexpr int width_of(IdType type) {
  if (type == IdType::i64) return 8;
  if (type == IdType::i32 || type == IdType::u32) return 4;
  return type == IdType::u8 || type == IdType::i8 ? 1 : 2;
}

/// What was replaced in a text before it became tokens.
struct Repairs {
  std::int64_t invalid = 0;   // byte sequences that were not UTF-8
  std::int64_t replaced = 0;  // lone surrogates, NaN and Infinity in rows
};

/// The ids in a .bin file.
struct TokenFileLayout {
  IdType type = IdType::u16;
  const char* data = nullptr;  // count · width_of(type) bytes of the file
  std::int64_t count = 0;
  std::int64_t first_byte = 0;  // of `data` in the file
  Repairs repairs;              // of the text, if Tessera has made the file
};

/// The 1024-byte header for `count` ids (1 or more) of `width` bytes (2 or 4). A count beyond int32 takes a form that
/// only Tessera reads (docs/formats.md).
[[nodiscard]] std::string token_file_header(int width, std::int64_t count, Repairs repairs = {});

/// The ids of a .bin file: Megatron's if its .idx is beside it (megatron.hpp), else llm.c's. Throws Error (data).
[[nodiscard]] TokenFileLayout open_token_file(std::string_view bytes, const std::string& path);

/// Checks a whole .bin file of llm.c. Throws Error (data): too short for a header, another magic (named if known) or
/// version, a count that is not positive, and a length that contradicts the count.
[[nodiscard]] TokenFileLayout check_token_file(std::string_view bytes, const std::string& path);

/// The largest id. Throws Error (data) at the first id that is negative or beyond 31 bits.
[[nodiscard]] std::int32_t largest_token(const TokenFileLayout& layout, const std::string& path);

/// Copies ids [first, first + count) to out. Throws Error (data) at the first id that is negative or against `rule`,
/// with its offset in the file at `path`; out is then undefined. Allocates nothing otherwise.
void copy_tokens(const TokenFileLayout& layout, const std::string& path, const TokenRule& rule, std::int64_t first,
                 std::int64_t count, std::int32_t* out);

}  // namespace tessera::io
