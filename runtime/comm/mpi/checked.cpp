// Checked MPI calls, and the mutex around them.
#include <mpi.h>

#include <atomic>

#include "runtime/base/error.hpp"
#include "runtime/comm/mpi/mpi.hpp"

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
