// SPDX-License-Identifier: Apache-2.0
#pragma once
// MpioFile: an existing HDF5 file that all ranks of an MPI communicator write through parallel HDF5 and MPI-IO. Every
// call but built() is collective: a rank that fails may leave the others waiting in MPI, so the caller runs them under
// World::with_mpi, whose watchdog ends such a run.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5/hdf5_file.hpp"

namespace tessera::io {

class MpioFile {
 public:
  /// Elements [first, first + count) of a data set in C order.
  struct Elements {
    std::uint64_t first = 0, count = 0;
  };
  /// Whether the HDF5 library of this build has MPI-IO.
  [[nodiscard]] static bool built();

  /// `communicator`: Fortran handle. The file keeps its size and headers. Throws Error (data).
  MpioFile(int communicator, const std::string& path);
  /// Leaves the file open if close() was not called: closing is collective.
  ~MpioFile() = default;
  MpioFile(const MpioFile&) = delete;

  /// Writes `parts` (in order, disjoint; none: this rank only takes part), which follow one another in `memory`, in the
  /// data set's type. Throws Error (data).
  void write(const Hdf5Dataset& dataset, const std::vector<Elements>& parts, const std::byte* memory);
  /// Throws Error (data).
  void close();

 private:
  std::string path_;
  std::int64_t file_ = -1;  // hid_t
};

}  // namespace tessera::io
