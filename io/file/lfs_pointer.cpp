// SPDX-License-Identifier: Apache-2.0
// The first line of a pointer.
#include "io/file/lfs_pointer.hpp"

#include "runtime/base/error.hpp"

namespace tessera::io {

void refuse_lfs_pointer(const std::string& path, std::string_view head) {
  if (!head.starts_with("version https://git-lfs.github.com/spec/")) return;
  throw Error(ExitCode::data, path + " is a git-lfs pointer: the file itself was not downloaded", {},
              "Run git lfs install && git lfs pull in its repository");
}

}  // namespace tessera::io
