#pragma once
// The rules of the layering as functions of a source tree: which file breaks which rule. Reads text only; knows no
// compiler.

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::layering {

/// "FILE:LINE: what is wrong", one per breach; empty: the rule holds.
using Violations = std::vector<std::string>;

/// Files under `root` with their paths relative to it, sorted; without build trees, outputs and version control.
[[nodiscard]] std::vector<std::string> files(const std::filesystem::path& root);

/// An include may only reach layers at or below one's own (the picture in docs/architecture.md).
[[nodiscard]] Violations includes_pointing_up(const std::filesystem::path& root);
/// mpi.h, cblas.h and their like stand only in source files of the layer that wraps them.
[[nodiscard]] Violations vendor_headers_leaking(const std::filesystem::path& root);
/// The top level holds the names it is allowed, and all of them.
[[nodiscard]] Violations top_level(const std::filesystem::path& root);
/// No source file beyond 500 lines, no line beyond 200 bytes, `#pragma once` first in a header, an opening comment in
/// each.
[[nodiscard]] Violations file_shapes(const std::filesystem::path& root);
/// No path of one person's machine, nothing that points outside the tree, no note left to oneself.
[[nodiscard]] Violations leftovers(const std::filesystem::path& root);
/// Relative links of the documents lead to files that exist.
[[nodiscard]] Violations broken_links(const std::filesystem::path& root);

}  // namespace tessera::layering
