// SPDX-License-Identifier: Apache-2.0
#pragma once
// The output path of a conversion or a merge: locked and checked before anything is written.

#include <cstdint>
#include <memory>
#include <string>

#include "io/file/file_lock.hpp"

namespace tessera::io {

/// A path without slashes at its end.
[[nodiscard]] std::string without_slash(std::string path);

/// Where an output is made: absolute, without dots and without slashes at its end.
[[nodiscard]] std::string output_path(const std::string& path);

/// Lets one process at a time make OUTPUT, also on other hosts of a shared file system: OUTPUT.lock beside it is locked
/// while the object lives, then removed. Where the file system has no locks, the file's existence counts. One process.
class OutputLock {
 public:
  /// Makes the parent directory of `output`. Throws Error (data): another process makes it, or a run writes into the
  /// directory to replace (E150); `output` exists and `replace` is false (E141); it is `input`, inside it, or holds it
  /// (E142); OUTPUT.tmp exists and is not what an interrupted conversion left (E141).
  OutputLock(const std::string& input, const std::string& output, bool replace);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::string path_;
  std::unique_ptr<FileLock> lock_;      // OUTPUT.lock
  std::unique_ptr<FileLock> replaced_;  // OUTPUT/.lock, of a run's directory
};
/// Throws Error (data), E140, unless the file system of `output` has `bytes` free.
void check_space(const std::string& output, std::uint64_t bytes);
/// PATH.old, or the first of PATH.old.2, … that does not exist.
[[nodiscard]] std::string backup_path(const std::string& path);

}  // namespace tessera::io
