// The handler calls only what is async-signal-safe: pread, pwrite, ftruncate, raise.
#include "jobs/cli/session/signals.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace tessera::jobs {

namespace {

std::atomic<int> status_descriptor{-1};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void write_failed_and_raise(int number) {
  static constexpr char word[] = "failed\n";
  const int descriptor = status_descriptor.load();
  char first = 0;
  // In place, so that it works on a full disk too. "completed" stays.
  const bool running = descriptor >= 0 && ::pread(descriptor, &first, 1, 0) == 1 && first == 'r';
  if (running && ::pwrite(descriptor, word, sizeof word - 1, 0) > 0)
    while (::ftruncate(descriptor, sizeof word - 1) != 0 && errno == EINTR) continue;
  ::raise(number);  // the default action, by SA_RESETHAND, when this handler returns
}

}  // namespace

void ignore_file_size_signal() noexcept { ::signal(SIGXFSZ, SIG_IGN); }

void mark_failed_on_signal(const char* status_file) noexcept {
  const int descriptor = status_file == nullptr ? -1 : ::open(status_file, O_RDWR | O_CLOEXEC);
  const int before = status_descriptor.exchange(descriptor);
  if (before >= 0) ::close(before);
  if (descriptor < 0) return;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = write_failed_and_raise;
    ours.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigemptyset(&ours.sa_mask);
    ::sigaction(number, &ours, nullptr);
  }
}

}  // namespace tessera::jobs
