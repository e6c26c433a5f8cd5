// SPDX-License-Identifier: Apache-2.0
#pragma once
// git-lfs leaves a short text in the place of a large file that it has not downloaded.

#include <string>
#include <string_view>

namespace tessera::io {

/// Throws Error (data) if a file that begins with `head` is such a pointer. read_text and SafetensorsFile call it.
void refuse_lfs_pointer(const std::string& path, std::string_view head);

}  // namespace tessera::io
