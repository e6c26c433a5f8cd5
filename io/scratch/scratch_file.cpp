// SPDX-License-Identifier: Apache-2.0
// A scratch file is locked before its header is written, so a file with a header and without a lock is a dead run's.
#include "io/scratch/scratch_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view scratch_prefix = "tessera-scratch.", scratch_suffix = ".tmp";
constexpr std::string_view scratch_magic = "Tessera scratch file\n";

std::string scratch_host() {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0) return "host";
  return host;
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

/// 0, EWOULDBLOCK: another process has the lock; else why there is none.
int lock_scratch(int descriptor) {
  int result = -1;
  do result = ::flock(descriptor, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

/// Whether the file is still in its directory.
bool has_a_name(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

bool is_in_memory(int descriptor) {
  struct statfs status {};
  if (::fstatfs(descriptor, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

/// Continues after short transfers. `call`(address, bytes, offset) is pread or pwrite. With O_DIRECT what follows must
/// begin on a page, so a page that was transferred in part is transferred again.
int transfer_all(std::byte* memory, std::size_t bytes, std::uint64_t offset, const auto& call) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = call(memory + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    const std::size_t now = done + static_cast<std::size_t>(n);
    const std::size_t next = now == bytes ? bytes : now / direct_alignment * direct_alignment;
    if (next <= done) return EIO;  // the file was cut, or the disk gives up within a page
    done = next;
  }
  return 0;
}

/// The paths of this process's scratch files, for remove_own_scratch_files. One that finds no place is left to the next
/// run in its directory.
struct OwnScratchPath {
  std::atomic<bool> taken = false, complete = false;
  char path[4096] = {};
};
OwnScratchPath own_scratch_paths[16];

void register_scratch(const std::string& path) {
  for (OwnScratchPath& own : own_scratch_paths) {
    if (path.size() >= sizeof own.path) return;
    if (own.taken.exchange(true)) continue;
    path.copy(own.path, path.size());
    own.path[path.size()] = '\0';
    return own.complete.store(true);
  }
}

void unregister_scratch(const std::string& path) {
  for (OwnScratchPath& own : own_scratch_paths) {
    if (!own.complete.load() || path != own.path) continue;
    own.complete = false;
    own.taken = false;
    return;
  }
}

bool is_scratch_name(const std::string& name) {
  return name.starts_with(scratch_prefix) && name.ends_with(scratch_suffix);
}

/// True if the file is a dead run's and was removed.
bool remove_if_dead(const std::string& path) {
  const File file = File::open_to_read(path);
  if (lock_scratch(file.descriptor()) != 0 || !has_a_name(file.descriptor())) return false;
  char text[scratch_magic.size()] = {};
  const bool empty = file.size() == 0;  // its run died between the file and the header
  if (!empty && (::pread(file.descriptor(), text, sizeof text, 0) != static_cast<ssize_t>(sizeof text) ||
                 std::string_view(text, sizeof text) != scratch_magic))
    return false;
  return ::unlink(path.c_str()) == 0;
}

}  // namespace

ScratchFile::ScratchFile(const std::string& directory, int rank, std::uint64_t bytes, const std::string& option) {
  TESSERA_ASSERT(bytes % direct_alignment == 0, "%lu bytes", bytes);
  try {
    make_directories(directory);
    (void)remove_scratch_leftovers(directory);
    create(directory, rank, option);
  } catch (const Error& error) {
    throw Error(error.code(), error.line(), option + " " + directory, "Choose another " + option);
  }
  register_scratch(path());
  try {
    write_header(rank);
    allocate(bytes, directory, rank, option);
  } catch (...) {
    remove();
    throw;
  }
}

ScratchFile::~ScratchFile() { remove(); }

void ScratchFile::remove() const noexcept {
  remove_quietly(path());
  unregister_scratch(path());
}

void ScratchFile::create(const std::string& directory, int rank, const std::string& option) {
  const std::string path = strfmt("%s/%s%s.%d.rank%d%s", directory.c_str(), scratch_prefix.data(),
                                  scratch_host().c_str(), static_cast<int>(::getpid()), rank, scratch_suffix.data());
  // Another rank that starts now may take the file, which has no lock yet, for a dead run's, and remove it.
  constexpr int attempts = 10;
  for (int i = 0; i < attempts; ++i) {
    file_ = File::create(path);
    while (lock_scratch(file_.descriptor()) == EWOULDBLOCK)  // until the other has removed it, or let it be
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (has_a_name(file_.descriptor())) return;  // without locks nobody removes it
  }
  throw Error(ExitCode::data, "another process removes the scratch files of this one", option + " " + directory,
              "Choose a directory that only training runs use");
}

/// The first direct write: it also finds file systems that take O_DIRECT when a file is opened, and not when written.
void ScratchFile::write_header(int rank) {
  const DirectBuffer page(direct_alignment);
  const std::string text = std::string(scratch_magic) +
                           strfmt(
                               "Process %d on %s, rank %d, keeps the states of a training run here while it runs.\n"
                               "This is no checkpoint. It may be deleted once that process has ended; the next run "
                               "in this directory does so.\n",
                               static_cast<int>(::getpid()), scratch_host().c_str(), rank);
  std::ranges::fill(page.span(), std::byte{0});
  std::ranges::copy(std::as_bytes(std::span(text)), page.span().begin());
  const std::string path = file_.path();
  writer_ = File::open_to_write(path, Cache::direct);
  const auto put = [&](int fd) {
    return transfer_all(page.span().data(), page.span().size(), 0,
                        [&](std::byte* m, std::size_t n, off_t o) { return ::pwrite(fd, m, n, o); });
  };
  int why = writer_.descriptor() >= 0 ? put(writer_.descriptor()) : EINVAL;
  if (why == 0) reader_ = File::open_to_read(path, Cache::direct);
  if (why == EINVAL || (why == 0 && reader_.descriptor() < 0)) {
    writer_ = File::open_to_write(path);
    reader_ = File::open_to_read(path);
    medium_ = ScratchMedium::page_cache;
    why = put(writer_.descriptor());
  }
  if (why != 0) throw system_error("write", path, why);
  if (is_in_memory(file_.descriptor())) medium_ = ScratchMedium::memory;
}

void ScratchFile::allocate(std::uint64_t bytes, const std::string& directory, int rank,
                           const std::string& option) const {
  if (bytes == 0) return;
  int why = 0;
  do why = ::posix_fallocate(file_.descriptor(), 0, static_cast<off_t>(header_bytes + bytes));
  while (why == EINTR);
  if (why == 0) return;
  std::string free;
  struct statfs status {};
  if (::fstatfs(file_.descriptor(), &status) == 0)
    free = strfmt("; %.2f GiB are free",
                  static_cast<double>(status.f_bavail) * static_cast<double>(status.f_bsize) / 1073741824.0);
  throw Error(ExitCode::data,
              strfmt("cannot allocate the scratch file %s: %s (rank %d needs %.2f GiB there%s)", path().c_str(),
                     errno_text(why).c_str(), rank, static_cast<double>(bytes) / 1073741824.0, free.c_str()),
              option + " " + directory, "Free some space, or choose another " + option);
}

int ScratchFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  const int fd = reader_.descriptor();
  return transfer_all(bytes.data(), bytes.size(), header_bytes + offset,
                      [fd](std::byte* m, std::size_t n, off_t o) { return ::pread(fd, m, n, o); });
}

int ScratchFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  const int fd = writer_.descriptor();
  return transfer_all(const_cast<std::byte*>(bytes.data()), bytes.size(), header_bytes + offset,
                      [fd](std::byte* m, std::size_t n, off_t o) { return ::pwrite(fd, m, n, o); });
}

int remove_scratch_leftovers(const std::string& directory) noexcept {
  int removed = 0;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::error_code ignored;
      if (!is_scratch_name(entry.path().filename().string()) || !fs::is_regular_file(entry.symlink_status(ignored)))
        continue;
      try {
        removed += static_cast<int>(remove_if_dead(entry.path().string()));
      } catch (const Error&) {  // gone, or of another user: it stays
      }
    }
  } catch (const std::exception&) {  // the directory cannot be listed: creating the file says why
  }
  return removed;
}

void remove_own_scratch_files() noexcept {
  for (const OwnScratchPath& own : own_scratch_paths)
    if (own.complete.load()) (void)::unlink(own.path);
}

}  // namespace tessera::io
