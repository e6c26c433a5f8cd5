// SPDX-License-Identifier: Apache-2.0
// The handlers call only what is async-signal-safe: clock_gettime, getppid, nanosleep, open, fstat, isatty, pread,
// pwrite, write, ftruncate, raise.
#include "jobs/cli/session/signals.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include "io/scratch/scratch_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/error_listener.hpp"

namespace tessera::jobs {

namespace {

std::atomic<int> stopped_by{0}, status_descriptor{-1};
std::atomic<bool> save{false}, prints_end{false}, started_by_mpirun{false}, mpirun_appends{false};
std::atomic<long> first_request_ms{0};
char stderr_of_mpirun[64] = "";
/// Two texts: a handler reads the one that is not being written.
char checkpoint_texts[2][1024] = {"none", "none"};
std::atomic<const char*> last_checkpoint{checkpoint_texts[0]};
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<long>::is_always_lock_free);

/// A line put together without memory from the heap; what does not fit is left out.
struct SignalLine {
  char text[1600];
  std::size_t size = 0;
  SignalLine& operator<<(const char* more) {
    const std::size_t n = std::min(std::strlen(more), sizeof text - size);
    std::memcpy(text + size, more, n);
    size += n;
    return *this;
  }
};

/// launchers and `timeout` may send a signal twice at once, to the process and to its group: that is one request.
constexpr long same_request_ms = 300;

long now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/// In place, so that it works on a full disk too. "completed" stays, and "failed" with its first reason. True: a signal
/// ends the run, which another rank may have written already; rank 0 puts its checkpoint in place of that rank's, which
/// may have ended before a save did.
bool write_failed(const char* name) {
  constexpr std::string_view by_signal = "failed\nby ";
  const int descriptor = status_descriptor.load();
  char text[64];
  const ssize_t size = descriptor < 0 ? -1 : ::pread(descriptor, text, sizeof text, 0);
  if (size < 1) return false;
  const std::string_view there(text, static_cast<std::size_t>(size));
  SignalLine line;
  line << by_signal.data() << name << " | last checkpoint: ";
  if (there[0] != 'r' && !(prints_end.load() && there.starts_with(std::string_view(line.text, line.size))))
    return there.starts_with(by_signal);
  line << last_checkpoint.load() << "\n";
  if (::pwrite(descriptor, line.text, line.size, 0) > 0)
    while (::ftruncate(descriptor, static_cast<off_t>(line.size)) != 0 && errno == EINTR) continue;
  return true;
}

/// What ends this rank, before mpirun, which then ends the others, makes a signal of it.
void write_error(const char* text) {
  const int descriptor = status_descriptor.load();
  char first = 0;
  if (descriptor < 0 || ::pread(descriptor, &first, 1, 0) != 1 || first != 'r') return;
  SignalLine line;
  line << "failed\n" << text << "\n";
  if (::pwrite(descriptor, line.text, line.size, 0) > 0) (void)!::ftruncate(descriptor, static_cast<off_t>(line.size));
}

void print_from_handler(const SignalLine& line) {
  if (prints_end.load()) (void)!::write(STDERR_FILENO, line.text, line.size);
}

void wait_before_end() {
  const timespec part_of_a_second{0, 700000000};
  ::nanosleep(&part_of_a_second, nullptr);
}

/// mpirun may drop what its ranks print while it ends them, so its own stderr is written to directly: a terminal, a
/// pipe, or a file that it appends to. (Elsewhere in a file its later output would overwrite the line.)
void print_past_mpirun(const SignalLine& line) {
  if (!prints_end.load()) return;
  struct stat there {};
  const int append = mpirun_appends.load() ? O_APPEND : 0;
  const int direct = ::open(stderr_of_mpirun, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | append);
  if (direct >= 0 &&
      (append != 0 || ::isatty(direct) != 0 || (::fstat(direct, &there) == 0 && S_ISFIFO(there.st_mode))) &&
      ::write(direct, line.text, line.size) > 0)
    return;
  print_from_handler(line);
  wait_before_end();
}

/// Whether writes to another process's stderr go to the end of its file.
bool appends_to_stderr(long process) {
  unsigned long flags = 0;
  if (std::FILE* info = std::fopen(strfmt("/proc/%ld/fdinfo/2", process).c_str(), "re")) {
    (void)!std::fscanf(info, "pos: %*s flags: %lo", &flags);
    std::fclose(info);
  }
  return (flags & O_APPEND) != 0;
}

/// True: the run goes on to the end of its step.
bool recorded_as_request(int number, bool from_mpirun) {
  if (number == SIGPIPE || from_mpirun) return false;
  const long now = now_ms();
  int none = 0;
  if (!stopped_by.compare_exchange_strong(none, number)) {
    long never = 0;  // after SIGUSR1 this is the first of its kind
    return first_request_ms.compare_exchange_strong(never, now) || now - never < same_request_ms;
  }
  first_request_ms.store(now);
  SignalLine line;
  print_from_handler(line << signal_name(number)
                          << ": the step is finished, a checkpoint saved, and the run ends with exit code 75; the "
                             "signal once more ends it at once\n");
  return true;
}

extern "C" void end_or_request(int number, siginfo_t* info, void*) {
  const int errno_before = errno;
  const bool from_mpirun = started_by_mpirun.load() && info->si_pid == ::getppid();
  if (recorded_as_request(number, from_mpirun)) {
    errno = errno_before;
    return;
  }
  if (write_failed(signal_name(number)) && number != SIGPIPE) {
    SignalLine line;
    line << "ended by " << signal_name(number);
    if (from_mpirun)
      line << ": mpirun was told to end, or another rank has ended, and leaves no time to save (tessera launch does)";
    line << " | last checkpoint: " << last_checkpoint.load() << " | continue with --resume_from_checkpoint auto\n";
    from_mpirun ? print_past_mpirun(line) : print_from_handler(line);
  }
  io::remove_own_scratch_files();
  if (from_mpirun && !prints_end.load()) wait_before_end();  // mpirun kills rank 0 as soon as another rank has ended
  ::signal(number, SIG_DFL);
  ::raise(number);  // blocked until this handler returns
}

extern "C" void record_request(int number) {
  if (number == SIGUSR2) return save.store(true);
  int none = 0;
  stopped_by.compare_exchange_strong(none, number);
}

}  // namespace

void ignore_file_size_signal() noexcept { ::signal(SIGXFSZ, SIG_IGN); }

void install_preemption_handlers() noexcept {
  for (const int number : {SIGUSR1, SIGUSR2}) {
    struct sigaction ours {};
    ours.sa_handler = record_request;
    ours.sa_flags = SA_RESTART;
    ::sigemptyset(&ours.sa_mask);
    ::sigaction(number, &ours, nullptr);
  }
  // Read before MPI starts, which sets these variables too under srun.
  started_by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  mpirun_appends = appends_to_stderr(::getppid());
  std::snprintf(stderr_of_mpirun, sizeof stderr_of_mpirun, "/proc/%d/fd/2", static_cast<int>(::getppid()));
}

int stop_signal() noexcept { return stopped_by.load(); }
bool take_save_request() noexcept { return save.exchange(false); }

const char* signal_name(int number) noexcept {
  switch (number) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGPIPE: return "SIGPIPE";
    case SIGUSR1: return "SIGUSR1";
    default: return "a signal";
  }
}

void handle_end_signals(const char* status_file, bool prints) noexcept {
  prints_end = prints;
  const int descriptor = status_file == nullptr ? -1 : ::open(status_file, O_RDWR | O_CLOEXEC);
  const int before = status_descriptor.exchange(descriptor);
  if (before >= 0) ::close(before);
  log::set_error_listener(status_file == nullptr ? nullptr : write_error);
  if (status_file == nullptr) {
    // What follows a run has no step to finish.
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
      struct sigaction now {};
      if (::sigaction(number, nullptr, &now) == 0 && now.sa_sigaction == end_or_request) ::signal(number, SIG_DFL);
    }
    return;
  }
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_sigaction = end_or_request;
    ours.sa_flags = SA_RESTART | SA_SIGINFO;
    ::sigemptyset(&ours.sa_mask);
    for (const int other : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::sigaddset(&ours.sa_mask, other);
    ::sigaction(number, &ours, nullptr);
  }
}

void set_last_checkpoint(const std::string& path) {
  char* next = last_checkpoint.load() == checkpoint_texts[0] ? checkpoint_texts[1] : checkpoint_texts[0];
  const std::size_t size = std::min(path.size(), sizeof checkpoint_texts[0] - 1);
  std::memcpy(next, path.data(), size);
  next[size] = '\0';
  last_checkpoint = next;
}

}  // namespace tessera::jobs
