// SPDX-License-Identifier: Apache-2.0
// renameat2 with RENAME_NOREPLACE, or a check before the rename.
#include "io/file/new_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "io/file/file.hpp"

namespace tessera::io {

void publish_new_directory(const std::string& from, const std::string& to) {
  const auto refuse = [&] {
    throw Error(ExitCode::data, "E141 " + to + " exists by now: another process has made it", {},
                "Choose another directory");
  };
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY) refuse();
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) throw system_error("write", to, errno);
    struct stat there {};  // the file system cannot refuse by itself; a directory with files is not replaced either way
    if (::lstat(to.c_str(), &there) == 0) refuse();
    if (::rename(from.c_str(), to.c_str()) != 0) throw system_error("write", to, errno);
  }
  sync_directory(directory_of(to));
}

}  // namespace tessera::io
