// SPDX-License-Identifier: Apache-2.0
#include "io/hdf5/hdf5_library.hpp"

#include <hdf5.h>

#include <type_traits>

#include "runtime/base/error.hpp"

namespace tessera::io::hdf5 {

static_assert(std::is_same_v<Id, hid_t> && std::is_same_v<Status, herr_t>);

namespace {

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

}  // namespace

void refuse(const std::string& what) { throw Error(ExitCode::data, "HDF5: " + what + ": " + why()); }

Handle::Handle(Id id, Status (*closer)(Id), const std::string& what) : id_(id), close_(closer) {
  if (id < 0) refuse(what);
}

void check(Status result, const std::string& what) {
  if (result < 0) refuse(what);
}

void prepare_library() {
  static const bool done = [] {
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5PLset_loading_state(0);
    return true;
  }();
  (void)done;
}

Id file_type(DType dtype) {
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

}  // namespace tessera::io::hdf5
