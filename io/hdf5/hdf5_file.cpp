// The only use of the HDF5 library: it lays files out in an anonymous file in memory, so that it never meets a full or
// failing disk, and it opens files to read their structure. [Note: HDF5 and full disks] in
// docs/checkpoints.md has the reasons.
#include "io/hdf5/hdf5_file.hpp"

#include <hdf5.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

/// Owns an HDF5 id.
class Handle {
 public:
  Handle(hid_t id, herr_t (*closer)(hid_t), const std::string& what);
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }  // NOLINT: for the library's calls
  /// Closes now; false on failure.
  [[nodiscard]] bool close() { return close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// The innermost message on the library's error stack.
std::string why() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
        if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &text);
  return text.empty() ? "the HDF5 library does not say why" : text;
}

[[noreturn]] void refuse(const std::string& what) { throw Error(ExitCode::data, "HDF5: " + what + ": " + why()); }

Handle::Handle(hid_t id, herr_t (*closer)(hid_t), const std::string& what) : id_(id), close_(closer) {
  if (id < 0) refuse(what);
}

void check(herr_t result, const std::string& what) {
  if (result < 0) refuse(what);
}

/// Once: turns off the library's own error output, and plug-ins, which a file could name.
void prepare_library() {
  static const bool done = [] {
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5PLset_loading_state(0);
    return true;
  }();
  (void)done;
}

/// The type in a file. bf16, which HDF5 lacks, is stored as uint16 with an attribute "dtype".
hid_t file_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return H5Tcopy(H5T_IEEE_F32LE);
    case DType::f64: return H5Tcopy(H5T_IEEE_F64LE);
    case DType::bf16: return H5Tcopy(H5T_STD_U16LE);
    case DType::i32: return H5Tcopy(H5T_STD_I32LE);
    case DType::i64: return H5Tcopy(H5T_STD_I64LE);
    case DType::u8: return H5Tcopy(H5T_STD_U8LE);
    case DType::f16: {
      const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
      H5Tset_fields(type, 15, 10, 5, 0, 10);
      H5Tset_size(type, 2);
      H5Tset_ebias(type, 15);
      return type;
    }
  }
  return -1;
}

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

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

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
void lay_out(const std::string& path, std::vector<Hdf5Dataset>& datasets,
             const std::vector<Hdf5Attribute>& attributes) {
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file properties");
  check(H5Pset_obj_track_times(creation, false), "no times");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties");
  // By the stdio driver, which does not resolve /proc/self/fd.
  check(H5Pset_fapl_stdio(access), "the stdio driver");
  // Superblock 2 with checksummed headers: damage in older forms crashes the library.
  check(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18), "the format's version");
  check(H5Pset_alignment(access, hdf5_aligned_from, hdf5_alignment), "alignment");
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

Hdf5Layout lay_out_hdf5(std::vector<Hdf5Dataset>& datasets, const std::vector<Hdf5Attribute>& attributes) {
  prepare_library();
  check_names(datasets);
  std::uint64_t most = header_bytes(datasets) + (1u << 20);
  for (auto& d : datasets) most += round_up(d.bytes = bytes_of(d), hdf5_alignment) + hdf5_alignment;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < most)
    throw Error(
        ExitCode::data,
        strfmt("the limit on the size of a file, %lu bytes, is below that of a checkpoint's file, %lu: File too large",
               limit.rlim_cur, most),
        "ulimit -f", "Raise the limit, or lower --checkpoint_file_size");
  const MemoryFile memory;
  lay_out(memory.path(), datasets, attributes);

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

namespace {

/// What a traversal of a file has found, or why it stopped.
struct Reading {
  Hdf5Contents catalog;
  std::string refused;
  std::size_t objects = 0;
};

constexpr std::size_t most_objects = 4'000'000;

/// Appends to a std::vector<std::string>, for the library's iterations; stops beyond most_objects.
template <class Info>
herr_t append_name(hid_t, const char* name, const Info*, void* names) {
  auto& list = *static_cast<std::vector<std::string>*>(names);
  list.emplace_back(name);
  return list.size() > most_objects ? 1 : 0;
}

std::string text_attribute(hid_t attribute, hid_t type) {
  std::string text(H5Tget_size(type), '\0');
  if (H5Tis_variable_str(type) > 0 || H5Aread(attribute, type, text.data()) < 0) return {};
  return text.substr(0, text.find('\0'));
}

bool plain_dtype(hid_t dataset, hid_t type, DType& out) {
  if (H5Tcommitted(type) > 0) return false;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i32, DType::i64, DType::u8, DType::bf16}) {
    const hid_t ours = file_type(dtype);
    const bool same = H5Tequal(ours, type) > 0;
    H5Tclose(ours);
    if (!same) continue;
    out = dtype;
    if (dtype != DType::bf16) return true;
    const hid_t attribute = H5Aexists(dataset, "dtype") > 0 ? H5Aopen(dataset, "dtype", H5P_DEFAULT) : -1;
    if (attribute < 0) return false;
    const hid_t word = H5Aget_type(attribute);
    const bool is_bf16 =
        H5Tget_class(word) == H5T_STRING && H5Tget_size(word) <= 16 && text_attribute(attribute, word) == "bf16";
    H5Tclose(word);
    H5Aclose(attribute);
    return is_bf16;
  }
  return false;
}

/// Reads one data set's description; returns why it is refused, or "".
std::string describe(hid_t dataset, std::uint64_t file_bytes, Hdf5Dataset& out) {
  const Handle properties(H5Dget_create_plist(dataset), H5Pclose, "properties");
  if (H5Pget_external_count(properties) != 0) return "uses external storage";
  switch (H5Pget_layout(properties)) {
    case H5D_CONTIGUOUS: break;
    case H5D_CHUNKED: return "is chunked";
    case H5D_VIRTUAL: return "is a virtual data set";
    default: return "is stored in its header";
  }
  if (H5Pget_nfilters(properties) != 0) return "has filters";
  const Handle type(H5Dget_type(dataset), H5Tclose, "a type");
  if (!plain_dtype(dataset, type, out.dtype)) return "has a type that checkpoints do not use";
  const Handle space(H5Dget_space(dataset), H5Sclose, "a shape");
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 0 || rank > 16) return "has a shape that checkpoints do not use";
  std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
  if (rank > 0 && H5Sget_simple_extent_dims(space, dims.data(), nullptr) < 0) return "has a shape that cannot be read";
  out.shape.assign(dims.begin(), dims.end());
  out.bytes = size_of(out.dtype);
  for (const hsize_t n : dims)
    if (n > INT64_MAX || __builtin_mul_overflow(out.bytes, n, &out.bytes))
      return "has a shape that overflows 2^63 bytes";
  if (out.bytes == 0) {
    out.offset = 0;
    return {};
  }
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) return "has no elements in the file";
  out.offset = offset;
  if (out.offset > file_bytes || out.bytes > file_bytes - out.offset) return "lies beyond the end of the file";
  return {};
}

void read_group(hid_t group, const std::string& prefix, std::uint64_t file_bytes, Reading& reading, int depth);

void read_member(hid_t group, const std::string& name, const std::string& path, std::uint64_t file_bytes,
                 Reading& reading, int depth) {
  if (++reading.objects > most_objects) {
    reading.refused = "holds too many objects";
    return;
  }
  H5L_info_t link;
  if (H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT) < 0) refuse("the link " + quote_name(path));
  if (link.type != H5L_TYPE_HARD) {
    reading.refused = quote_name(path) + (link.type == H5L_TYPE_SOFT ? " is a soft link" : " is an external link");
    return;
  }
  const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose, quote_name(path));
  switch (H5Iget_type(object)) {
    case H5I_GROUP: return read_group(object, path, file_bytes, reading, depth + 1);
    case H5I_DATASET: {
      Hdf5Dataset d;
      d.path = path;
      if (const std::string forbidden = describe(object, file_bytes, d); !forbidden.empty())
        reading.refused = quote_name(path) + " " + forbidden;
      else reading.catalog.datasets.push_back(std::move(d));
      return;
    }
    default: reading.refused = quote_name(path) + " is a committed type"; return;
  }
}

void read_group(hid_t group, const std::string& prefix, std::uint64_t file_bytes, Reading& reading, int depth) {
  if (depth > 16) {
    reading.refused = quote_name(prefix) + ": groups within groups without end";
    return;
  }
  std::vector<std::string> names;
  hsize_t at = 0;
  check(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, append_name<H5L_info_t>, &names),
        "the links of " + quote_name(prefix.empty() ? "/" : prefix));
  for (const std::string& name : names) {
    if (!reading.refused.empty()) return;
    read_member(group, name, prefix + "/" + name, file_bytes, reading, depth);
  }
}

void read_attributes(hid_t file, Reading& reading) {
  hsize_t at = 0;
  std::vector<std::string> names;
  check(H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_INC, &at, append_name<H5A_info_t>, &names), "the attributes");
  for (const std::string& name : names) {
    const Handle attribute(H5Aopen(file, name.c_str(), H5P_DEFAULT), H5Aclose, "the attribute " + quote_name(name));
    const Handle type(H5Aget_type(attribute), H5Tclose, "a type");
    const Handle space(H5Aget_space(attribute), H5Sclose, "a shape");
    Hdf5Attribute out{name, {}, 0};
    if (H5Sget_simple_extent_npoints(space) != 1 || H5Tget_size(type) > 4096) continue;
    if (H5Tget_class(type) == H5T_STRING) out.text = text_attribute(attribute, type);
    else if (H5Tget_class(type) != H5T_INTEGER || H5Aread(attribute, H5T_NATIVE_INT64, &out.number) < 0) continue;
    reading.catalog.attributes.push_back(std::move(out));
  }
}

}  // namespace

Hdf5Contents read_hdf5(const std::string& path) {
  prepare_library();
  const std::uint64_t file_bytes = File::open_to_read(path).size();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties");
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(access, false, true), "no file locks");
#endif
  try {
    const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "opening it");
    Reading reading;
    read_attributes(file, reading);
    read_group(file, "", file_bytes, reading, 0);
    if (!reading.refused.empty()) throw Error(ExitCode::data, "E121 " + path + ": " + reading.refused + "; refused");
    std::ranges::sort(reading.catalog.datasets, {}, &Hdf5Dataset::offset);
    std::ranges::sort(reading.catalog.attributes, {}, &Hdf5Attribute::name);
    return std::move(reading.catalog);
  } catch (const Error& error) {
    if (error.line().starts_with("E121")) throw;
    throw Error(ExitCode::data,
                "E120 " + path + ": not an HDF5 file, or a damaged one (an interrupted save?): " + error.line());
  }
}

}  // namespace tessera::io
