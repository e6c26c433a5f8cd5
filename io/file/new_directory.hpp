// SPDX-License-Identifier: Apache-2.0
#pragma once
// A directory that takes its name only if the name is free.

#include <string>

namespace tessera::io {

/// Renames the directory `from` to `to`, durably, as publish_directory does. What is at `to` by now is another
/// process's: throws Error (data), E141.
void publish_new_directory(const std::string& from, const std::string& to);

}  // namespace tessera::io
