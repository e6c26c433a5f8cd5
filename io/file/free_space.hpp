// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies that are made of data: what they may take of a disk, and when one is made again.

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/base/error.hpp"

namespace tessera::io {

/// Throws where `reserve` bytes would not be left free on the disk of `directory`; asks the file system after every 64
/// MiB. `too_little` makes the error of the bytes that have been written.
class FreeSpace {
 public:
  FreeSpace(std::string directory, std::uint64_t reserve, std::function<Error(std::uint64_t written)> too_little);
  /// So many bytes are written next.
  void take(std::uint64_t bytes);

 private:
  std::string directory_;
  std::uint64_t reserve_, left_ = 0, written_ = 0;
  std::function<Error(std::uint64_t)> too_little_;
};

/// A hash of a file's path without links, size and time of change. Throws Error (data).
[[nodiscard]] std::uint64_t file_identity(const std::string& path);

}  // namespace tessera::io
