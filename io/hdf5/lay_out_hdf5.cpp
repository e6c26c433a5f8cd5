// SPDX-License-Identifier: Apache-2.0
// Lays files out in an anonymous file in memory, so that the HDF5 library never meets a full or failing disk.
// [Note: HDF5 and full disks] in docs/checkpoints.md has the reasons.
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <set>

#include "io/file/file.hpp"
#include "io/hdf5/hdf5_file.hpp"
#include "io/hdf5/hdf5_library.hpp"

namespace tessera::io {

using hdf5::check;
using hdf5::file_type;
using hdf5::Handle;
using hdf5::prepare_library;
using hdf5::refuse;

namespace {

void write_text_attribute(hid_t where, const std::string& name, const std::string& text) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "a text type");
  check(H5Tset_size(type, text.size()), "a text type");
  check(H5Tset_strpad(type, H5T_STR_NULLPAD), "a text type");
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, "a scalar");
  const Handle attribute(H5Acreate2(where, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         "the attribute " + name);
  check(H5Awrite(attribute, type, text.data()), "the attribute " + name);
}

void write_number_attribute(hid_t where, const std::string& name, std::int64_t number) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, "a scalar");
  const Handle attribute(H5Acreate2(where, name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         "the attribute " + name);
  check(H5Awrite(attribute, H5T_NATIVE_INT64, &number), "the attribute " + name);
}

/// Enough space for all headers at once, so that the data follow without gaps.
std::uint64_t header_bytes(const std::vector<Hdf5Dataset>& datasets) {
  std::uint64_t total = 16384;
  for (const auto& d : datasets) total += 640 + 2 * d.path.size();
  return round_up(total, 65536);
}

std::uint64_t bytes_of(const Hdf5Dataset& d) {
  std::uint64_t bytes = size_of(d.dtype);
  for (const std::int64_t n : d.shape)
    if (n < 1 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes))
      throw Error(ExitCode::data, "HDF5: the shape of " + quote_name(d.path) + " cannot be stored");
  return bytes;
}

/// The groups above all data sets, each once, in order of first use.
void make_groups(hid_t file, const std::string& path, std::set<std::string>& made) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string group = path.substr(0, slash);
    if (!made.insert(group).second) continue;
    const Handle properties(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "group properties");
    check(H5Pset_obj_track_times(properties, false), "no times");
    const Handle made_group(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, properties, H5P_DEFAULT), H5Gclose,
                            "the group " + group);
  }
}

void make_dataset(hid_t file, Hdf5Dataset& d) {
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "data set properties");
  check(H5Pset_layout(properties, H5D_CONTIGUOUS), "a contiguous layout");
  check(H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY), "early allocation");
  check(H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER), "no fill");
  check(H5Pset_obj_track_times(properties, false), "no times");
  std::vector<hsize_t> dims(d.shape.begin(), d.shape.end());
  const Handle space(
      dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
      H5Sclose, "the shape of " + quote_name(d.path));
  const Handle type(file_type(d.dtype), H5Tclose, "a type");
  const Handle dataset(H5Dcreate2(file, d.path.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose,
                       "the data set " + quote_name(d.path));
  if (d.dtype == DType::bf16) write_text_attribute(dataset, "dtype", "bf16");
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) refuse("the place of " + quote_name(d.path));
  d.offset = offset;
}

/// Creates the file at `path`, which is in memory.
void lay_out(const std::string& path, std::vector<Hdf5Dataset>& datasets, const std::vector<Hdf5Attribute>& attributes,
             std::uint64_t alignment) {
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file properties");
  check(H5Pset_obj_track_times(creation, false), "no times");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties");
  // By the stdio driver, which does not resolve /proc/self/fd.
  check(H5Pset_fapl_stdio(access), "the stdio driver");
  // Superblock 2 with checksummed headers: damage in older forms crashes the library.
  check(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18), "the format's version");
  const std::uint64_t aligned_from = alignment == hdf5_alignment ? hdf5_aligned_from : alignment;
  check(H5Pset_alignment(access, aligned_from, alignment), "alignment");
  check(H5Pset_meta_block_size(access, header_bytes(datasets)), "room for headers");
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(access, false, true), "no file locks");
#endif
  Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose, "a new file");
  for (const auto& a : attributes) {
    if (a.text.empty()) write_number_attribute(file, a.name, a.number);
    else write_text_attribute(file, a.name, a.text);
  }
  std::set<std::string> groups;
  for (auto& d : datasets) {
    make_groups(file, d.path, groups);
    make_dataset(file, d);
  }
  check(H5Fflush(file, H5F_SCOPE_GLOBAL), "writing the headers");
  if (!file.close()) refuse("closing the file");
}

/// An anonymous file in memory. Sparse: elements, which are not written, take no memory.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("tessera-hdf5", MFD_CLOEXEC)) {
    if (fd_ < 0) throw system_error("make", "a file in memory", errno);
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void check_names(const std::vector<Hdf5Dataset>& datasets) {
  for (const auto& d : datasets) {
    const bool well_formed = d.path.size() > 1 && d.path.size() < 4096 && d.path.front() == '/' &&
                             d.path.back() != '/' && d.path.find("//") == std::string::npos &&
                             d.path.find('\0') == std::string::npos;
    if (!well_formed || d.path.find("/./") != std::string::npos || d.path.ends_with("/."))
      throw Error(ExitCode::data, "HDF5: " + quote_name(d.path) + " cannot be the name of a data set");
  }
}

}  // namespace

Hdf5Layout lay_out_hdf5(std::vector<Hdf5Dataset>& datasets, const std::vector<Hdf5Attribute>& attributes,
                        std::uint64_t alignment) {
  TESSERA_ASSERT(alignment >= hdf5_alignment && std::has_single_bit(alignment), "alignment %lu", alignment);
  prepare_library();
  check_names(datasets);
  std::uint64_t most = header_bytes(datasets) + (1u << 20);
  for (auto& d : datasets) most += round_up(d.bytes = bytes_of(d), alignment) + alignment;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < most)
    throw Error(
        ExitCode::data,
        strfmt("the limit on the size of a file, %lu bytes, is below that of a checkpoint's file, %lu: File too large",
               limit.rlim_cur, most),
        "ulimit -f", "Raise the limit, or lower --checkpoint_file_size");
  const MemoryFile memory;
  lay_out(memory.path(), datasets, attributes, alignment);

  std::vector<const Hdf5Dataset*> by_offset;
  for (const auto& d : datasets) by_offset.push_back(&d);
  std::ranges::sort(by_offset, {}, &Hdf5Dataset::offset);
  const File file = File::open_to_read(memory.path());
  Hdf5Layout layout;
  layout.file_bytes = file.size();
  std::uint64_t at = 0;
  const auto take = [&](std::uint64_t until) {
    TESSERA_ASSERT(until >= at, "data sets overlap at %lu", until);
    if (until == at) return;
    Hdf5Layout::Metadata range{at, std::string(until - at, '\0')};
    file.read_at(at, std::as_writable_bytes(std::span(range.bytes)));
    layout.metadata.push_back(std::move(range));
  };
  for (const Hdf5Dataset* d : by_offset) {
    take(d->offset);
    at = d->offset + d->bytes;
  }
  // The library may leave the file shorter than the end of the last elements.
  layout.file_bytes = std::max(layout.file_bytes, at);
  take(layout.file_bytes);
  return layout;
}

}  // namespace tessera::io
