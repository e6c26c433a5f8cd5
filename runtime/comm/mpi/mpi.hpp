// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the source files that call MPI. Communicators are passed as Fortran handles (int), so that mpi.h stays out
// of headers.

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/shared_memory.hpp"

namespace tessera::comm {

/// Throws Error (communication) with call, file, line and MPI's message unless `status` is MPI_SUCCESS.
void check_mpi(int status, const char* call, const char* file, int line);

/// Locked around every MPI call: several threads call MPI, one at a time, so that MPI_THREAD_SERIALIZED is enough.
[[nodiscard]] std::recursive_timed_mutex& mpi_mutex();

/// Around a blocking collective of MPI, which holds mpi_mutex: this rank's watchdog ends the run if it takes longer
/// than the timeout. One at a time.
class BlockingCall {
 public:
  explicit BlockingCall(const char* name);
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;
};
/// The call that this rank is in, since when (monotonic_ns), and how many it has begun; name: null outside a call.
struct BlockingCallState {
  const char* name = nullptr;
  std::int64_t since_ns = 0;
  std::int64_t begun = 0;
};
[[nodiscard]] BlockingCallState blocking_call();

/// False after a failure and after MPI_Finalize: nothing that is collective may be freed then.
[[nodiscard]] bool mpi_usable();
void set_mpi_usable(bool usable);

/// Take ownership of the communicator. `elsewhere`: which of its ranks are on other nodes than this one. Ranks of
/// mpi_shared_memory are on one host.
[[nodiscard]] std::unique_ptr<Endpoint> mpi_endpoint(int communicator, std::vector<bool> elsewhere);
[[nodiscard]] std::shared_ptr<SharedMemory> mpi_shared_memory(int communicator);
/// Frees the communicator unless the run has failed.
void release_mpi(int communicator) noexcept;

/// Free bytes of /dev/shm, which holds shared windows; the largest number if that is unknown.
[[nodiscard]] std::uint64_t free_shared_memory();

}  // namespace tessera::comm

#define TESSERA_MPI(call) ::tessera::comm::check_mpi((call), #call, __FILE__, __LINE__)
