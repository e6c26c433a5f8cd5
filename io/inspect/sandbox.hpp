#pragma once
// An HDF5 file that nobody vouches for: read by a process of its own with limits on memory, time and writing, so that
// whatever the library does with it ends there.

#include "io/hdf5/hdf5_file.hpp"

namespace tessera::io {

/// As read_hdf5. Not to be called where MPI runs (it forks). Throws Error (data), E120, also where that
/// process crashes or meets a limit.
[[nodiscard]] Hdf5Contents read_hdf5_sandboxed(const std::string& path);

}  // namespace tessera::io
