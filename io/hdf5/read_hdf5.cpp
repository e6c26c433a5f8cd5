// SPDX-License-Identifier: Apache-2.0
// Reads the structure of a file: data sets and attributes, and refuses what checkpoints do not use.
#include <hdf5.h>

#include <algorithm>

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
