// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPT-2's spelling of bytes as printable characters: 33-126, 161-172, 174-255 as themselves, the others
// from U+0100 on (space is U+0120).

#include <optional>
#include <string>
#include <string_view>

namespace tessera::io {

[[nodiscard]] char32_t byte_character(unsigned char byte);
/// The bytes of a spelling (UTF-8); absent if one of its characters stands for no byte.
[[nodiscard]] std::optional<std::string> bytes_of_spelling(std::string_view spelling);
[[nodiscard]] std::string spelling_of_bytes(std::string_view bytes);

}  // namespace tessera::io
