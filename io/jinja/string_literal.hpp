// SPDX-License-Identifier: Apache-2.0
#pragma once
// String literals of a template: Python's escapes.

#include <string>
#include <string_view>

namespace tessera::io::jinja {

/// Appends what a literal's content (without its quotes) means to `out`. Returns what is wrong with it, or "".
[[nodiscard]] std::string unescape(std::string_view literal, std::string& out);

}  // namespace tessera::io::jinja
