// SPDX-License-Identifier: Apache-2.0
// Checked MPI calls, and the mutex around them.
#include <mpi.h>

#include <atomic>

#include "runtime/base/error.hpp"
#include "runtime/comm/mpi/mpi.hpp"
#include "runtime/comm/watchdog.hpp"

namespace tessera::comm {

void check_mpi(int status, const char* call, const char* file, int line) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  const std::string name(call, std::string_view(call).find('('));
  throw Error(ExitCode::communication, name + ": " + text, strfmt("%s:%d", file, line));
}

std::recursive_timed_mutex& mpi_mutex() {
  static std::recursive_timed_mutex mutex;
  return mutex;
}

namespace {
std::atomic<const char*> call_name{nullptr};
std::atomic<std::int64_t> call_since_ns{0}, calls_begun{0};
}  // namespace

BlockingCall::BlockingCall(const char* name) {
  call_since_ns.store(monotonic_ns());
  ++calls_begun;
  call_name.store(name);
}
BlockingCall::~BlockingCall() { call_name.store(nullptr); }

BlockingCallState blocking_call() { return {call_name.load(), call_since_ns.load(), calls_begun.load()}; }

static std::atomic<bool> usable{false};
bool mpi_usable() { return usable.load(); }
void set_mpi_usable(bool now) { usable.store(now); }

void release_mpi(int communicator) noexcept {
  if (!mpi_usable() || std::uncaught_exceptions() > 0) return;
  std::lock_guard lock(mpi_mutex());
  MPI_Comm comm = MPI_Comm_f2c(communicator);
  MPI_Comm_free(&comm);
}

}  // namespace tessera::comm
