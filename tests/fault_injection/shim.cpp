// SPDX-License-Identifier: Apache-2.0
// A library between a program and the kernel (LD_PRELOAD, or linked): counts the calls that change files under one
// directory and makes one of them fail. Sees every call that goes through a symbol of libc, those of libhdf5 and
// libstdc++ included; not what libc calls inside itself (stdio's own write). Depends on no Tessera library. By the
// environment:
//   FAULT_DIR   the directory, as realpath gives it; without it nothing is counted
//   FAULT_WITH  count only paths that contain this
//   FAULT_AFTER begin to count at the first call whose path contains this
//   FAULT_RANK  the rank with the fault (OMPI_COMM_WORLD_RANK); the others only count
//   FAULT_AT    which call fails, from 1; 0 or unset: none
//   FAULT_KIND  kill: SIGKILL, a write half done | stop: SIGSTOP | ENOSPC | EIO | EINVAL |
//               short: half a write or read, what follows succeeds | flip: one bit of what is written or read is
//               another one, without an error | short_full: half a write, then no space | full: no space
//               from there on
//   FAULT_READS  set: reads (read, pread) are counted, and the calls that change files are not
//   FAULT_NO_EXCHANGE  set: renameat2 with flags fails with EINVAL, as on NFS and others that cannot exchange names
//   FAULT_NO_LOCKS  set: flock fails with ENOLCK, as where the file system has no locks
//   FAULT_LOG   PREFIX: each call is a line "NUMBER CALL PATH" in PREFIX.RANK, the failed call "fault KIND CALL PATH"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "tests/fault_injection/failing_call.hpp"

using namespace fault;

namespace {

/// Changes a bit in the middle; a second time changes it back.
void flip_bit(void* memory, std::size_t bytes) { static_cast<unsigned char*>(memory)[bytes / 2] ^= 4; }

ssize_t write_some(const char* call, int descriptor, const void* memory, std::size_t bytes, off_t offset) {
  bool last = false, flip = false;
  const ssize_t most = permit_bytes(Call::write, call, descriptor, bytes, last, flip);
  if (most < 0) return -1;
  ssize_t done = 0;
  if (flip && bytes > 0) flip_bit(const_cast<void*>(memory), bytes);
  if (most > 0 || bytes == 0)
    done = offset < 0 ? ::syscall(SYS_write, descriptor, memory, static_cast<std::size_t>(most))
                      : ::syscall(SYS_pwrite64, descriptor, memory, static_cast<std::size_t>(most), offset);
  if (flip && bytes > 0) flip_bit(const_cast<void*>(memory), bytes);  // the caller's bytes are as before
  if (last) end_here();
  return done;
}

/// No bit is changed; `offset` below 0: where the descriptor is.
ssize_t write_parts(const char* call, int descriptor, const struct iovec* parts, int count, off_t offset) {
  bool last = false, flip = false;
  const ssize_t most = permit_bytes(Call::write, call, descriptor, count > 0 ? parts[0].iov_len : 0, last, flip);
  if (most < 0) return -1;
  const bool complete = !last && (count == 0 || static_cast<std::size_t>(most) == parts[0].iov_len);
  const auto bytes = static_cast<std::size_t>(most);
  ssize_t done = 0;
  if (complete && offset < 0) done = ::syscall(SYS_writev, descriptor, parts, count);
  else if (complete) done = ::syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
  else if (offset < 0) done = ::syscall(SYS_write, descriptor, parts[0].iov_base, bytes);
  else done = ::syscall(SYS_pwrite64, descriptor, parts[0].iov_base, bytes, offset);
  if (last) end_here();
  return done;
}

ssize_t read_some(const char* call, int descriptor, void* memory, std::size_t bytes, off_t offset) {
  bool last = false, flip = false;
  const ssize_t most = permit_bytes(Call::read, call, descriptor, bytes, last, flip);
  if (last) end_here();
  if (most < 0) return -1;
  const auto n = static_cast<std::size_t>(most);
  const ssize_t done =
      offset < 0 ? ::syscall(SYS_read, descriptor, memory, n) : ::syscall(SYS_pread64, descriptor, memory, n, offset);
  if (flip && done > 0) flip_bit(memory, static_cast<std::size_t>(done));
  return done;
}

bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0; }

int open_some(const char* call, int base, const char* path, int flags, unsigned mode) {
  if (writes(flags) && permit(call, base, path, (flags & O_CREAT) != 0 ? Needs::space : Needs::nothing) != 0) return -1;
  const auto opened = static_cast<int>(::syscall(SYS_openat, base, path, flags, mode));
  if (!writes(flags)) count_open(base, path, opened);
  return opened;
}

unsigned mode_of(int flags, va_list list) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, unsigned) : 0;
}

}  // namespace

extern "C" {

#define OPENS(name)                                        \
  int name(const char* path, int flags, ...) {             \
    va_list list;                                          \
    va_start(list, flags);                                 \
    const unsigned mode = mode_of(flags, list);            \
    va_end(list);                                          \
    return open_some("open", AT_FDCWD, path, flags, mode); \
  }
#define OPENS_AT(name)                                   \
  int name(int base, const char* path, int flags, ...) { \
    va_list list;                                        \
    va_start(list, flags);                               \
    const unsigned mode = mode_of(flags, list);          \
    va_end(list);                                        \
    return open_some("openat", base, path, flags, mode); \
  }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)
// What a build with _FORTIFY_SOURCE calls if the flags are not constant.
int __open_2(const char* path, int flags) { return open_some("open", AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_some("open", AT_FDCWD, path, flags, 0); }
int __openat_2(int base, const char* path, int flags) { return open_some("openat", base, path, flags, 0); }
int __openat64_2(int base, const char* path, int flags) { return open_some("openat", base, path, flags, 0); }
int creat(const char* path, mode_t mode) {
  return open_some("creat", AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char* path, mode_t mode) {
  return open_some("creat", AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

ssize_t write(int descriptor, const void* memory, size_t bytes) {
  return write_some("write", descriptor, memory, bytes, -1);
}
ssize_t pwrite(int descriptor, const void* memory, size_t bytes, off_t offset) {
  return write_some("pwrite", descriptor, memory, bytes, offset);
}
ssize_t pwrite64(int descriptor, const void* memory, size_t bytes, off64_t offset) {
  return write_some("pwrite", descriptor, memory, bytes, offset);
}
ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  return write_parts("writev", descriptor, parts, count, -1);
}
ssize_t pwritev(int descriptor, const struct iovec* parts, int count, off_t offset) {
  return write_parts("pwritev", descriptor, parts, count, offset);
}
ssize_t pwritev64(int descriptor, const struct iovec* parts, int count, off64_t offset) {
  return write_parts("pwritev", descriptor, parts, count, offset);
}

ssize_t read(int descriptor, void* memory, size_t bytes) { return read_some("read", descriptor, memory, bytes, -1); }
ssize_t pread(int descriptor, void* memory, size_t bytes, off_t offset) {
  return read_some("pread", descriptor, memory, bytes, offset);
}
ssize_t pread64(int descriptor, void* memory, size_t bytes, off64_t offset) {
  return read_some("pread", descriptor, memory, bytes, offset);
}

int fsync(int descriptor) {
  return permit("fsync", descriptor, nullptr) != 0 ? -1 : static_cast<int>(::syscall(SYS_fsync, descriptor));
}
int fdatasync(int descriptor) {
  return permit("fdatasync", descriptor, nullptr) != 0 ? -1 : static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}
int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  if (permit("fallocate", descriptor, nullptr, Needs::space) != 0) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, length));
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t length) {
  return fallocate(descriptor, mode, offset, length);
}
int posix_fallocate(int descriptor, off_t offset, off_t length) {
  return fallocate(descriptor, 0, offset, length) == 0 ? 0 : errno;
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t length) {
  return posix_fallocate(descriptor, offset, length);
}
int ftruncate(int descriptor, off_t length) noexcept {
  return permit("ftruncate", descriptor, nullptr) != 0 ? -1
                                                       : static_cast<int>(::syscall(SYS_ftruncate, descriptor, length));
}
int ftruncate64(int descriptor, off64_t length) noexcept { return ftruncate(descriptor, length); }

int renameat2(int from_base, const char* from, int to_base, const char* to, unsigned flags) noexcept {
  if (permit("rename", from_base, from) != 0) return -1;
  if (flags != 0 && no_exchange) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_base, from, to_base, to, flags));
}
int renameat(int from_base, const char* from, int to_base, const char* to) noexcept {
  return renameat2(from_base, from, to_base, to, 0);
}
int rename(const char* from, const char* to) noexcept { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int lock_file(int descriptor, int operation) noexcept __asm__("flock");  // a type has this name too
int lock_file(int descriptor, int operation) noexcept {
  if (!no_locks) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = ENOLCK;
  return -1;
}
int linkat(int from_base, const char* from, int to_base, const char* to, int flags) noexcept {
  if (permit("link", to_base, to, Needs::space) != 0) return -1;
  if (no_links) {
    errno = EPERM;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_linkat, from_base, from, to_base, to, flags));
}
int link(const char* from, const char* to) noexcept { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlinkat(int base, const char* path, int flags) noexcept {
  if (permit((flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", base, path) != 0) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, base, path, flags));
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  const int before = errno;
  if (unlink(path) == 0) return 0;
  if (errno != EISDIR) return -1;
  errno = before;
  return rmdir(path);
}
int mkdirat(int base, const char* path, mode_t mode) noexcept {
  return permit("mkdir", base, path, Needs::space) != 0 ? -1
                                                        : static_cast<int>(::syscall(SYS_mkdirat, base, path, mode));
}
int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

/// Fails only for files opened for writing; the descriptor is closed even if the call fails.
int close(int descriptor) {
  const int before = errno;
  const long flags = is_armed() ? ::syscall(SYS_fcntl, descriptor, F_GETFL) : -1;
  errno = before;
  const bool to_write = flags >= 0 && writes(static_cast<int>(flags) & O_ACCMODE);
  if (flags >= 0 && !to_write) count_close(descriptor);
  const bool refused = to_write && permit("close", descriptor, nullptr) != 0;
  const int why = errno;
  const int result = static_cast<int>(::syscall(SYS_close, descriptor));
  if (!refused) return result;
  errno = why;
  return -1;
}
}
