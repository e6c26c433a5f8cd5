// SPDX-License-Identifier: Apache-2.0
// What the environment (shim.cpp) or fault_arm (shim.hpp) has chosen: which calls are counted, and which of them fails.
#include "tests/fault_injection/failing_call.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fault_injection/shim.hpp"

namespace fault {

bool no_exchange = false, no_links = false, no_locks = false;

namespace {

enum class Kind { none, kill, stop, enospc, eio, einval, short_write, short_full, full, flip };

char directory[PATH_MAX], with[256], after[256], kind_name[32], happened[PATH_MAX + 64];
Kind kind = Kind::none;
std::atomic<long> counted{0};
std::atomic<long> at{0};
std::atomic<bool> begun{true}, disk_full{false};
int log_descriptor = -1;

void copy(char* to, std::size_t size, const char* from) { std::snprintf(to, size, "%s", from); }

Kind kind_of(const char* name) {
  copy(kind_name, sizeof kind_name, name);
  static constexpr struct {
    const char* name;
    Kind kind;
  } all[] = {{"kill", Kind::kill}, {"stop", Kind::stop},         {"ENOSPC", Kind::enospc},
             {"EIO", Kind::eio},   {"short", Kind::short_write}, {"short_full", Kind::short_full},
             {"full", Kind::full}, {"flip", Kind::flip},         {"EINVAL", Kind::einval}};
  for (const auto& one : all)
    if (std::strcmp(name, one.name) == 0) return one.kind;
  return Kind::none;
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::atomic<bool> of_reads{false};
thread_local long opened_to_read = 0, open_now = 0, most_open = 0;

__attribute__((constructor)) void read_environment() {
  no_exchange = *environment("FAULT_NO_EXCHANGE") != 0;
  no_locks = *environment("FAULT_NO_LOCKS") != 0;
  of_reads = *environment("FAULT_READS") != 0;
  copy(directory, sizeof directory, environment("FAULT_DIR"));
  if (directory[0] == 0) return;
  copy(with, sizeof with, environment("FAULT_WITH"));
  copy(after, sizeof after, environment("FAULT_AFTER"));
  begun = after[0] == 0;
  const char* rank = *environment("OMPI_COMM_WORLD_RANK") != 0 ? environment("OMPI_COMM_WORLD_RANK") : "0";
  const char* chosen = environment("FAULT_RANK");
  if (*chosen == 0 || std::strcmp(rank, chosen) == 0) {
    kind = kind_of(environment("FAULT_KIND"));
    at = std::atol(environment("FAULT_AT"));
  }
  if (*environment("FAULT_LOG") == 0) return;
  char path[PATH_MAX];
  std::snprintf(path, sizeof path, "%s.%s", environment("FAULT_LOG"), rank);
  log_descriptor =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

void note(const char* text) {
  if (log_descriptor >= 0) (void)::syscall(SYS_write, log_descriptor, text, std::strlen(text));
}

/// The absolute path of a call; false: unknown.
bool path_of(int descriptor, const char* name, char* out) {
  if (name != nullptr && name[0] == '/') {
    copy(out, PATH_MAX, name);
    return true;
  }
  char link[64];
  if (descriptor == AT_FDCWD) copy(link, sizeof link, "/proc/self/cwd");
  else std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const long n = ::syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
  if (n <= 0) return false;
  out[n] = 0;
  if (name != nullptr && name[0] != 0 && static_cast<std::size_t>(n) + std::strlen(name) + 2 < PATH_MAX) {
    out[n] = '/';
    copy(out + n + 1, PATH_MAX - static_cast<std::size_t>(n) - 1, name);
  }
  return true;
}

bool counts(const char* path) {
  const std::size_t n = std::strlen(directory);
  if (n == 0 || std::strncmp(path, directory, n) != 0 || (path[n] != '/' && path[n] != 0)) return false;
  if (!begun) {
    if (std::strstr(path, after) == nullptr) return false;
    begun = true;
  }
  return std::strstr(path, with) != nullptr;
}

enum class Outcome { go_on, kill, fail, shorten, flip };

/// Counts a call and decides its outcome; errno is set for `fail`.
Outcome decide(const char* call, int descriptor, const char* name, Needs needs, Call what) {
  if ((what == Call::read) != of_reads) return Outcome::go_on;
  const bool moves = what != Call::change;
  char path[PATH_MAX];
  const int before = errno;
  const bool mine = directory[0] != 0 && path_of(descriptor, name, path) && counts(path);
  errno = before;
  if (!mine) return Outcome::go_on;
  const long number = ++counted;
  char line[PATH_MAX + 128];
  std::snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
  note(line);
  if (disk_full && needs == Needs::space) return errno = ENOSPC, Outcome::fail;
  if (number != at) return Outcome::go_on;
  std::snprintf(happened, sizeof happened, "%s %s", call, path);
  std::snprintf(line, sizeof line, "fault %s %s %s\n", kind_name, call, path);
  note(line);
  switch (kind) {
    case Kind::none: return Outcome::go_on;
    case Kind::kill: return Outcome::kill;
    case Kind::stop: (void)::syscall(SYS_kill, ::getpid(), SIGSTOP); return Outcome::go_on;
    case Kind::enospc: return errno = ENOSPC, Outcome::fail;
    case Kind::eio: return errno = EIO, Outcome::fail;
    case Kind::einval: return errno = EINVAL, Outcome::fail;
    case Kind::short_write: return moves ? Outcome::shorten : Outcome::go_on;
    case Kind::short_full: disk_full = true; return moves ? Outcome::shorten : Outcome::go_on;
    case Kind::flip: return moves ? Outcome::flip : Outcome::go_on;
    case Kind::full: disk_full = true; return needs == Needs::space ? (errno = ENOSPC, Outcome::fail) : Outcome::go_on;
  }
  return Outcome::go_on;
}

}  // namespace

bool is_armed() { return directory[0] != 0; }

void end_here() {
  (void)::syscall(SYS_kill, ::getpid(), SIGKILL);
  for (;;) (void)::syscall(SYS_pause);
}

int permit(const char* call, int descriptor, const char* name, Needs needs) {
  const Outcome outcome = decide(call, descriptor, name, needs, Call::change);
  if (outcome == Outcome::kill) end_here();
  return outcome == Outcome::fail ? -1 : 0;
}

ssize_t permit_bytes(Call what, const char* call, int descriptor, std::size_t bytes, bool& last, bool& flip) {
  const Outcome outcome = decide(call, descriptor, nullptr, what == Call::write ? Needs::space : Needs::nothing, what);
  last = outcome == Outcome::kill;
  flip = outcome == Outcome::flip;
  if (outcome == Outcome::fail) return -1;
  if (outcome == Outcome::go_on || flip) return static_cast<ssize_t>(bytes);
  // Direct reads and writes are of whole pages.
  const bool direct = (::syscall(SYS_fcntl, descriptor, F_GETFL) & O_DIRECT) != 0;
  const std::size_t half = direct ? bytes / 2 / 4096 * 4096 : bytes / 2;
  if (half == 0 && !last) return static_cast<ssize_t>(bytes);
  return static_cast<ssize_t>(half);
}

namespace {
bool is_counted(int descriptor, const char* name) {
  char path[PATH_MAX];
  const int before = errno;
  const bool counted_file = is_armed() && path_of(descriptor, name, path) && counts(path);
  errno = before;
  return counted_file;
}
}  // namespace

void count_open(int base, const char* name, int opened) {
  if (!is_counted(base, name)) return;
  ++opened_to_read;
  if (opened >= 0 && ++open_now > most_open) most_open = open_now;
}

void count_close(int descriptor) {
  if (is_counted(descriptor, nullptr)) --open_now;
}

}  // namespace fault

using namespace fault;

extern "C" {

void fault_arm(const char* where, const char* part, long number, const char* what) {
  counted = 0;
  disk_full = false;
  begun = true;
  happened[0] = 0;
  kind = kind_of(what);
  copy(with, sizeof with, part);
  copy(directory, sizeof directory, where);
  at = number;
}
long fault_disarm() {
  at = 0;
  directory[0] = 0;
  disk_full = false;
  return counted.exchange(0);
}
long fault_opened_to_read() {
  const long count = opened_to_read;
  opened_to_read = 0;
  return count;
}
long fault_most_open() {
  const long most = most_open;
  most_open = open_now;
  return most;
}
void fault_exchange(int possible) { no_exchange = possible == 0; }
void fault_locks(int possible) { no_locks = possible == 0; }
void fault_links(int possible) { no_links = possible == 0; }
void fault_reads(int instead) { of_reads = instead != 0; }
const char* fault_happened() { return happened; }
}
