#pragma once
// Whether the MPI in use takes device pointers.

namespace tessera {

/// What MPI says of itself: false also where it has no word for it. It is the build's answer, not the transport's.
[[nodiscard]] bool mpi_takes_device_memory();

}  // namespace tessera
