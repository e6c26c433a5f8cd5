#pragma once
// Where a long text may be cut so that its parts can be tokenised apart.

#include <cstddef>
#include <string_view>

namespace tessera::io {

/// The first place behind `least` bytes or more, before the end, where a newline ends that stands alone between two
/// characters that are no white space; the text's size if there is none. The text need not be UTF-8. A tokenizer must
/// have been loaded.
[[nodiscard]] std::size_t find_split_point(std::string_view text, std::size_t least);

}  // namespace tessera::io
