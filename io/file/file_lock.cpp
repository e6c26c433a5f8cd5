// SPDX-License-Identifier: Apache-2.0
// flock on a file whose text names process and host.
#include "io/file/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

std::string text_of_lock(int descriptor) {
  char text[512];
  const ssize_t n = ::pread(descriptor, text, sizeof text, 0);
  return {text, n > 0 ? static_cast<std::size_t>(n) : 0};
}

/// The first line of the process that has just locked the file: it writes it a moment later.
std::string holder_of(int descriptor) {
  std::string text;
  for (int i = 0; i < 100 && text.find('\n') == text.npos; ++i) {
    ::usleep(10'000);
    text = text_of_lock(descriptor);
  }
  return text.empty() ? "unknown" : text.substr(0, text.find('\n'));
}

int open_lock(const std::string& path, int flags) {
  int descriptor = -1;
  do descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::string text_of_this_process() {
  char host[128] = "?";
  ::gethostname(host, sizeof host - 1);
  std::random_device random;
  return strfmt("process %d on %s\nrun %08x%08x\n", static_cast<int>(::getpid()), host, random(), random());
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::string& what_to_do)
    : path_(path), descriptor_(open_lock(path, O_CREAT | O_EXCL)) {
  created_ = descriptor_ >= 0;
  if (!created_ && errno == EEXIST) descriptor_ = open_lock(path, O_CREAT);  // another process may just remove it
  if (descriptor_ < 0) throw system_error("write", path, errno);
  held_ = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  if (!held_ && errno == EWOULDBLOCK) {
    const std::string holder = holder_of(descriptor_);
    ::close(descriptor_);
    throw Error(ExitCode::data, "E150 another run writes there: " + holder, path, what_to_do);
  }
  before_ = text_of_lock(descriptor_);
  const std::string mine = text_of_this_process();
  if (::ftruncate(descriptor_, 0) == 0 &&
      ::pwrite(descriptor_, mine.data(), mine.size(), 0) == static_cast<ssize_t>(mine.size()) &&
      ::fsync(descriptor_) == 0)
    owner_ = mine;  // without the text the lock is held all the same
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileLock::add_line(const std::string& line) {
  const std::string text = line + "\n";
  if (::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(owner_.size())) !=
          static_cast<ssize_t>(text.size()) ||
      ::fsync(descriptor_) != 0)
    throw system_error("write", path_, errno);
}

bool FileLock::is_in_place() const {
  struct stat mine {
  }, there{};
  return ::fstat(descriptor_, &mine) == 0 && ::lstat(path_.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

}  // namespace tessera::io
