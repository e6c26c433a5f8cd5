#pragma once
// JSON Lines: the documents under the "text" key, one object a line.

#include <functional>
#include <string>
#include <string_view>

namespace tessera::io {

/// Calls `document` with the text of each line of `bytes`, in order; lines of nothing but spaces are skipped. Throws
/// Error (data) at "path:line": no JSON object, no "text", "text" twice or no string, a zero byte. The first line is
/// number `first_line`.
void for_each_jsonl_text(std::string_view bytes, const std::string& path,
                         const std::function<void(std::string_view)>& document, std::size_t first_line = 1);

}  // namespace tessera::io
