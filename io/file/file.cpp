// SPDX-License-Identifier: Apache-2.0
// The system calls behind file.hpp.

#include "io/file/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/local_work.hpp"

namespace tessera::io {

Error system_error(const std::string& verb, const std::string& path, int error_number) {
  std::string to_do;
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG)
    to_do = "Free some space, or write elsewhere";
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS)
    to_do = "Check who may read and write there";
  if (error_number == ENOENT || error_number == ENOTDIR) to_do = "Check the path";
  return Error(ExitCode::data, "cannot " + verb + " " + path + ": " + std::generic_category().message(error_number), {},
               to_do);
}

std::string quote_name(std::string_view name) {
  constexpr std::size_t longest = 120;
  std::string text = "\"";
  for (const char c : name.substr(0, longest)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + (name.size() > longest ? "…\"" : "\"");
}

namespace {
int open_or_throw(const std::string& verb, const std::string& path, int flags) {
  int fd = -1;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) throw system_error(verb, path, errno);
  return fd;
}

/// -1 if Cache::direct is not available.
int open_in(const std::string& verb, const std::string& path, int flags, Cache cache) {
  if (cache == Cache::page) return open_or_throw(verb, path, flags);
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_DIRECT);
  if (fd < 0 && errno != EINVAL && errno != EOPNOTSUPP && errno != EINTR) throw system_error(verb, path, errno);
  return fd;
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}
}  // namespace

namespace {
/// Of one call: a slow disk shows that it works.
constexpr std::size_t most_at_once = 64 << 20;
}  // namespace

File File::open_to_read(const std::string& path, Cache cache) {
  File file(path, open_in("read", path, O_RDONLY | O_NONBLOCK | O_NOCTTY, cache));
  if (file.fd_ < 0) return file;
  struct stat status {};
  if (::fstat(file.fd_, &status) != 0) throw system_error("read", path, errno);
  if (!S_ISREG(status.st_mode))
    throw Error(ExitCode::data, "cannot read " + path + ": it is " + kind_of(status.st_mode), {},
                "Name a regular file");
  return file;
}

File File::create(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw system_error("write", path, errno);
  return {path, open_or_throw("write", path, O_WRONLY | O_CREAT | O_EXCL)};
}

File File::open_to_write(const std::string& path, Cache cache) {
  return {path, open_in("write", path, O_WRONLY, cache)};
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}
File::File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

std::uint64_t File::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw system_error("read", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_, bytes.data(), std::min(bytes.size(), most_at_once), static_cast<off_t>(offset));
    note_local_work();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("read", path_, errno);
    if (got == 0)
      throw Error(ExitCode::data, strfmt("%s ends at byte %lu, before the end of this read", path_.c_str(), offset));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd_, bytes.data(), std::min(bytes.size(), most_at_once), static_cast<off_t>(offset));
    note_local_work();
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw system_error("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

void File::allocate(std::uint64_t bytes) const {
  int result = -1;
  do result = ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  note_local_work();
  if (result == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) throw system_error("write", path_, errno);
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw system_error("write", path_, errno);
}

void File::sync() const {
  if (::fsync(fd_) != 0) throw system_error("write", path_, errno);
  note_local_work();
}

void File::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) throw system_error("write", path_, errno);
}

MappedFile::MappedFile(const std::string& path) {
  const File file = File::open_to_read(path);
  size_ = file.size();
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) throw system_error("map", path, errno);
  data_ = static_cast<const char*>(data);
}
MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}
MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void MappedFile::release(std::size_t offset, std::size_t length) const {
  note_local_work();  // what was read there is done with
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t end = std::min(offset + length, size_);
  const std::size_t first = offset / page * page, last = end == size_ ? end : end / page * page;
  // Advice: a failure costs memory only.
  if (first < last) ::madvise(const_cast<char*>(data_) + first, last - first, MADV_DONTNEED);
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void commit_rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error("write", to, errno);
  sync_directory(directory_of(to));
}

void sync_directory(const std::string& directory) {
  const int fd = open_or_throw("write", directory, O_RDONLY | O_DIRECTORY);
  const int result = ::fsync(fd), why = errno;
  ::close(fd);
  if (result != 0 && why != EINVAL && why != EROFS)
    throw system_error("write", directory, why);  // EINVAL: the file system has no sync for directories
}

void remove_quietly(const std::string& path) noexcept { ::unlink(path.c_str()); }

void make_directories(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) throw system_error("make the directory", path, failed.value());
}

namespace {
/// What the tree has, each entry noted as work: large files take long. Returns the first failure.
std::error_code remove_tree(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed, ignored;
  if (fs::is_directory(fs::symlink_status(path, ignored)))
    for (fs::directory_iterator entry(path, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
      (void)::unlink(entry->path().c_str());  // not of a directory; remove_all says what stays
      note_local_work();
    }
  fs::remove_all(path, failed);
  return failed;
}
}  // namespace

void remove_tree_quietly(const std::string& path) noexcept {
  try {
    (void)remove_tree(path);
  } catch (const std::exception&) {  // no memory for a path
  }
}

void remove_directory(const std::string& path) {
  const std::string trash = path + ".trash";
  remove_tree_quietly(trash);
  // The rename removes all of it at once; then the files go one by one.
  if (::rename(path.c_str(), trash.c_str()) != 0) throw system_error("remove", path, errno);
  if (const std::error_code error = remove_tree(trash); error) throw system_error("remove", trash, error.value());
}

void publish_directory(const std::string& from, const std::string& to, const std::string& backup) {
  struct stat there {};
  if (::lstat(to.c_str(), &there) != 0) return commit_rename(from, to);
  const auto exchange = [&](const std::string& a) {
    return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0;
  };
  if (!backup.empty()) {
    // The new one takes the backup's name first: whenever the process ends, no name that is taken for rubbish has the
    // old one.
    if (::rename(from.c_str(), backup.c_str()) != 0) throw system_error("write", backup, errno);
    if (exchange(backup)) return sync_directory(directory_of(to));
    const int why = errno;
    (void)::rename(backup.c_str(), from.c_str());
    errno = why;
  } else if (exchange(from)) {
    sync_directory(directory_of(to));
    remove_tree_quietly(from);
    return;
  }
  // Two renames only where the file system cannot exchange names; after any other failure everything stays as it was.
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) throw system_error("write", to, errno);
  // The old one is removed last; if the process ends between the renames, io::remove_leftovers puts `from` in place.
  const std::string aside = backup.empty() ? to + ".trash" : backup;
  if (backup.empty()) remove_tree_quietly(aside);
  if (::rename(to.c_str(), aside.c_str()) != 0) throw system_error("write", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int why = errno;
    (void)::rename(aside.c_str(), to.c_str());  // as it was
    throw system_error("write", to, why);
  }
  sync_directory(directory_of(to));
  if (backup.empty()) remove_tree_quietly(aside);
}

}  // namespace tessera::io
