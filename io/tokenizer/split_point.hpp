// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a long text can be split so that its parts can be tokenized separately.

#include <cstddef>
#include <string_view>

namespace tessera::io {

/// The offset after the first newline, `least` bytes or more into the text, that is between two non-space characters,
/// the second of which is no slash (o200k keeps slashes behind newlines with the symbol before them); the text's size
/// if there is none. The text need not be UTF-8. A tokenizer must be loaded.
[[nodiscard]] std::size_t find_split_point(std::string_view text, std::size_t least);

}  // namespace tessera::io
