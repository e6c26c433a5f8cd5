// SPDX-License-Identifier: Apache-2.0
#pragma once
// What laying out and reading HDF5 files share: ids, errors and types of the HDF5 library. Private to io/hdf5; hdf5.h
// is not needed to include it.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/base/dtype.hpp"

namespace tessera::io::hdf5 {

using Id = std::int64_t;  // hid_t
using Status = int;       // herr_t; negative: failed

/// Owns an id of the library. Throws Error (data) naming `what` if the call that made it failed.
class Handle {
 public:
  Handle(Id id, Status (*closer)(Id), const std::string& what);
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator Id() const { return id_; }  // NOLINT: for the library's calls
  /// Closes now; false on failure.
  [[nodiscard]] bool close() { return close_(std::exchange(id_, -1)) >= 0; }

 private:
  Id id_;
  Status (*close_)(Id);
};

/// Throws Error (data): what failed, and why, by the library's error stack.
[[noreturn]] void refuse(const std::string& what);
/// Refuses if a call failed.
void check(Status result, const std::string& what);

/// Before the first call: turns off the library's own error output, and plug-ins, which a file could name.
void prepare_library();
/// A new id of the type in a file, for the caller to close. bf16, which HDF5 lacks, is stored as uint16 with an
/// attribute "dtype".
[[nodiscard]] Id file_type(DType dtype);

}  // namespace tessera::io::hdf5
