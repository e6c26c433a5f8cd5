// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checkout or copy without symbolic links leaves a text in the place of each: the path that the link had as target.

#include <string>
#include <string_view>

namespace tessera::io {

/// The longest target that is looked for, in bytes.
inline constexpr std::size_t longest_link_text = 1024;

/// True if `text`, the whole content of the file at `path`, is one path and nothing else, as a checkout without links
/// writes a link's target: it begins with "../", or names another file from the directory of `path` (in that directory:
/// of the same ending).
[[nodiscard]] bool is_link_text(const std::string& path, std::string_view text);
/// Throws Error (data) if it is. read_text, SafetensorsFile and open_token_file call it.
void refuse_link_text(const std::string& path, std::string_view text);

}  // namespace tessera::io
