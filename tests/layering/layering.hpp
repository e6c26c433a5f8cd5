// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rules that the source tree keeps, each a function of a tree: which line of which file breaks it. They read text
// only and know no compiler.

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::layering {

/// "FILE:LINE: what is wrong", one for each violation; empty: the rule holds.
using Violations = std::vector<std::string>;

/// Files under `root` with their paths relative to it, sorted; without build trees, outputs and version control.
[[nodiscard]] std::vector<std::string> files(const std::filesystem::path& root);

/// An include reaches the layers below its own only (the picture in docs/architecture.md).
[[nodiscard]] Violations includes_pointing_up(const std::filesystem::path& root);
/// Folders of a layer include each other in no cycle. A source file may include its folder's subfolders, where the
/// implementations lie that it dispatches to; a header may not.
[[nodiscard]] Violations folder_cycles(const std::filesystem::path& root);
/// Headers of kernels outside kernels/cuda include nothing of it.
[[nodiscard]] Violations device_headers_in_common_ones(const std::filesystem::path& root);
/// mpi.h, cblas.h and other vendors' headers are included by source files of the folder that wraps them only.
[[nodiscard]] Violations vendor_headers_leaking(const std::filesystem::path& root);
/// The top level holds the names it is allowed, and all of them.
[[nodiscard]] Violations top_level(const std::filesystem::path& root);
/// Source files have at most 500 lines of at most 120 columns, literals and what clang-format leaves alone apart. A
/// header begins with `#pragma once` (after the license) and a comment that says what it is.
[[nodiscard]] Violations file_shapes(const std::filesystem::path& root);
/// Source files, scripts and CMake files name their license (SPDX) in one of their first two lines.
[[nodiscard]] Violations missing_licenses(const std::filesystem::path& root);
/// Markdown has at most 120 columns, tables and code blocks apart, and a line that has no space to break at.
[[nodiscard]] Violations long_markdown_lines(const std::filesystem::path& root);
/// No path of one person's machine, nothing that points outside the tree, no note of work to be done.
[[nodiscard]] Violations leftovers(const std::filesystem::path& root);
/// Relative links of Markdown files lead to files that exist.
[[nodiscard]] Violations broken_links(const std::filesystem::path& root);
/// Files and folders of this tree that pages about the code name in `code` exist: `models/family.cpp`,
/// `models/family.{hpp,cpp}`. Names with `*`, `<` or `…` stand for others, and are left out.
[[nodiscard]] Violations missing_paths(const std::filesystem::path& root);
/// The errors that docs/troubleshooting.md quotes, as `code` in the first cell of a row, are in a source.
[[nodiscard]] Violations unknown_errors(const std::filesystem::path& root);

}  // namespace tessera::layering
