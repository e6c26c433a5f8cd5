#pragma once
// What the source files that call MPI share. MPI communicators travel as their Fortran numbers, so that mpi.h stays in
// them.

#include <memory>
#include <mutex>

#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/shared_memory.hpp"

namespace tessera::comm {

/// Throws Error (communication) with the call, the place and MPI's own words unless `status` is MPI_SUCCESS.
void check_mpi(int status, const char* call, const char* file, int line);

/// Held around every MPI call: several threads call, one at a time, so that MPI_THREAD_SERIALIZED is enough.
[[nodiscard]] std::recursive_timed_mutex& mpi_mutex();

/// False once the run has failed or MPI is finalised: then nothing collective may be released any more.
[[nodiscard]] bool mpi_usable();
void set_mpi_usable(bool usable);

/// Take the communicator over. The shelf's members share a host.
[[nodiscard]] std::unique_ptr<Endpoint> mpi_endpoint(int communicator);
[[nodiscard]] std::shared_ptr<SharedMemory> mpi_shared_memory(int communicator);
/// Frees the communicator unless the run has failed.
void release_mpi(int communicator) noexcept;

/// Free bytes of the file system that shared windows lie on (/dev/shm); all of them if it cannot be asked.
[[nodiscard]] unsigned long long free_shared_memory();

}  // namespace tessera::comm

#define TESSERA_MPI(call) ::tessera::comm::check_mpi((call), #call, __FILE__, __LINE__)
