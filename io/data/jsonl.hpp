#pragma once
// JSON Lines: one object a line, its document under the key "text".

#include <functional>
#include <string>
#include <string_view>

namespace tessera::io {

/// Calls `document` with the text of each line of `bytes`, in order; blank lines are skipped. Throws Error (data)
/// at "path:line": not a JSON object, no "text", "text" twice or not a string, a zero byte. The first line is number
/// `first_line`.
void for_each_jsonl_text(std::string_view bytes, const std::string& path,
                         const std::function<void(std::string_view)>& document, std::size_t first_line = 1);

}  // namespace tessera::io
