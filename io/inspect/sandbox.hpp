// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads an HDF5 file without checksums in a child process with limits on memory, time and writing, so that a hostile
// file cannot harm this process.

#include "io/hdf5/hdf5_file.hpp"

namespace tessera::io {

/// As read_hdf5. It forks: do not call it while MPI runs. Throws Error (data), E120, also if the child crashes or
/// reaches a limit.
[[nodiscard]] Hdf5Contents read_hdf5_sandboxed(const std::string& path);

}  // namespace tessera::io
