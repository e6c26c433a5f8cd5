// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether this MPI accepts device pointers.

namespace tessera {

/// MPIX_Query_cuda_support(); false if this MPI does not have it. It tells how MPI was built, not what its transport
/// does.
[[nodiscard]] bool mpi_takes_device_memory();

}  // namespace tessera
