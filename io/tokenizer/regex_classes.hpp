// SPDX-License-Identifier: Apache-2.0
#pragma once
// Regular expressions of tokenizer.json, with their character classes written out: the engine's own tables are those of
// whatever Unicode version it was built with.

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera::io {

/// What a regular expression has that is not supported: "the property \p{Greek}".
struct UnsupportedRegex : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `regex` with \p{…}, \P{…}, \s, \d, \w and their complements as ranges of code points, by the tables of
/// unicode_ranges.hpp. Throws UnsupportedRegex for what depends on tables that are not there: other properties than the
/// general categories, POSIX brackets, word boundaries, classes and characters beyond ASCII whose case is ignored; and
/// for back references, calls, callouts, comments and extended syntax.
[[nodiscard]] std::string with_known_classes(std::string_view regex);

}  // namespace tessera::io
