// SPDX-License-Identifier: Apache-2.0
// The map between bytes and characters, both ways.

#include "io/tokenizer/byte_level.hpp"

#include <array>

#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

struct Maps {
  std::array<char32_t, 256> character{};
  std::array<int, 0x144> byte{};  // by character; -1: none. The last of the 68 is U+0143.
};

constexpr Maps make_maps() {
  Maps maps;
  for (int& byte : maps.byte) byte = -1;
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    maps.character[b] = itself ? b : next++;
    maps.byte[maps.character[b]] = static_cast<int>(b);
  }
  return maps;
}
constexpr Maps byte_maps = make_maps();

}  // namespace

char32_t byte_character(unsigned char byte) { return byte_maps.character[byte]; }

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  const char* at = spelling.data();
  const char* const end = at + spelling.size();
  while (at != end) {
    const utf8::Point point = utf8::read(at);
    at += point.length;
    if (point.code >= byte_maps.byte.size() || byte_maps.byte[point.code] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_maps.byte[point.code]);
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) utf8::append(spelling, byte_character(static_cast<unsigned char>(c)));
  return spelling;
}

}  // namespace tessera::io
