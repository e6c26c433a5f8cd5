// SPDX-License-Identifier: Apache-2.0
#include "io/hdf5/mpio_file.hpp"

#include <hdf5.h>

#include <algorithm>
#include <utility>

#include "io/file/file.hpp"
#include "io/hdf5/hdf5_library.hpp"

namespace tessera::io {

#ifdef H5_HAVE_PARALLEL

using hdf5::check;
using hdf5::Handle;

namespace {

/// Adds these elements to a selection, as at most 2 * dimensions - 1 boxes: parts of rows at both ends, and whole
/// planes between them.
void add_elements(hid_t space, const std::vector<hsize_t>& shape, MpioFile::Elements part) {
  std::vector<hsize_t> strides(shape.size(), 1);  // elements of one step along each dimension
  for (std::size_t d = shape.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * shape[d];
  while (part.count > 0) {
    std::vector<hsize_t> start(shape.size()), count(shape.size(), 1);
    for (std::size_t d = 0; d < shape.size(); ++d) start[d] = part.first / strides[d] % shape[d];
    std::size_t along = 0;  // the outermost dimension along which whole steps begin here
    while (part.first % strides[along] != 0 || part.count < strides[along]) ++along;
    count[along] = std::min<hsize_t>(shape[along] - start[along], part.count / strides[along]);
    for (std::size_t d = along + 1; d < shape.size(); ++d) count[d] = shape[d];
    check(H5Sselect_hyperslab(space, H5S_SELECT_OR, start.data(), nullptr, count.data(), nullptr), "a selection");
    const hsize_t taken = count[along] * strides[along];
    part.first += taken;
    part.count -= taken;
  }
}

}  // namespace

bool MpioFile::built() { return true; }

MpioFile::MpioFile(int communicator, const std::string& path) : path_(path) {
  hdf5::prepare_library();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties");
  check(H5Pset_fapl_mpio(access, MPI_Comm_f2c(communicator), MPI_INFO_NULL), "the MPI-IO driver");
  check(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18), "the format's version");
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(access, false, true), "no file locks");
#endif
  file_ = H5Fopen(path.c_str(), H5F_ACC_RDWR, access);
  if (file_ < 0) hdf5::refuse("cannot open " + path + " by MPI-IO");
}

void MpioFile::write(const Hdf5Dataset& dataset, const std::vector<Elements>& parts, const std::byte* memory) {
  const std::string name = quote_name(dataset.path) + " of " + path_;
  const Handle there(H5Dopen2(file_, dataset.path.c_str(), H5P_DEFAULT), H5Dclose, "cannot open " + name);
  const Handle type(H5Dget_type(there), H5Tclose, "the type of " + name);  // in memory as in the file
  const Handle in_file(H5Dget_space(there), H5Sclose, "the shape of " + name);
  hsize_t count = 0;
  for (const Elements& part : parts) count += part.count;
  const hsize_t room = std::max<hsize_t>(count, 1);
  const Handle in_memory(H5Screate_simple(1, &room, nullptr), H5Sclose, "a selection");
  if (count == 0) check(H5Sselect_none(in_memory), "a selection");
  if (count == 0 || !dataset.shape.empty()) check(H5Sselect_none(in_file), "a selection");
  const std::vector<hsize_t> shape(dataset.shape.begin(), dataset.shape.end());
  for (const Elements& part : parts)
    if (!shape.empty()) add_elements(in_file, shape, part);
  const Handle transfer(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "transfer properties");
  check(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE), "collective writes");
  check(H5Dwrite(there, type, in_memory, in_file, transfer, memory), "cannot write " + name);
}

void MpioFile::close() {
  if (file_ >= 0) check(H5Fclose(std::exchange(file_, -1)), "cannot close " + path_);
}

#else

namespace {
[[noreturn]] void refuse_serial() {
  throw Error(ExitCode::usage, "this program's HDF5 library was built without MPI", "--checkpoint_io mpio",
              "Use --checkpoint_io direct, or build with a parallel HDF5 (Debian: libhdf5-openmpi-dev)");
}
}  // namespace

bool MpioFile::built() { return false; }
MpioFile::MpioFile(int, const std::string&) { refuse_serial(); }
void MpioFile::write(const Hdf5Dataset&, const std::vector<Elements>&, const std::byte*) { refuse_serial(); }
void MpioFile::close() {}

#endif

}  // namespace tessera::io
