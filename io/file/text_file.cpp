// SPDX-License-Identifier: Apache-2.0
// Small text files.

#include "io/file/text_file.hpp"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

#include "io/file/file.hpp"
#include "io/file/lfs_pointer.hpp"
#include "io/file/link_text.hpp"
#include "runtime/base/local_work.hpp"

namespace tessera::io {

std::string read_text(const std::string& path, std::size_t limit) {
  const File file = File::open_to_read(path);
  std::string text;
  const auto too_long = [&] {
    return Error(ExitCode::data, strfmt("%s is longer than %zu bytes, the limit for such a file", path.c_str(), limit));
  };
  if (file.size() > limit) throw too_long();
  std::size_t capacity = static_cast<std::size_t>(file.size()) + 1;  // one more, so that the first read finds the end
  for (;;) {                                                         // to the end, not to size(), which is 0 in /proc
    const std::size_t at = text.size();
    text.resize(at + capacity);
    const ssize_t got = ::read(file.descriptor(), text.data() + at, capacity);
    const int why = errno;
    note_local_work();
    text.resize(at + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && why == EINTR) continue;
    if (got < 0) throw system_error("read", path, why);
    if (got == 0) break;
    if (text.size() > limit) throw too_long();
    capacity = std::min<std::size_t>(4096, limit + 1 - text.size());
  }
  refuse_lfs_pointer(path, text);
  refuse_link_text(path, text);
  return text;
}

void write_text(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  try {
    File file = File::create(temporary);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
    file.close();
    commit_rename(temporary, path);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
}

}  // namespace tessera::io
