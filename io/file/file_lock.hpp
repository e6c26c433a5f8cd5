// SPDX-License-Identifier: Apache-2.0
#pragma once
// FileLock: a lock file that names its holder. The lock is released with the object, or with the process.

#include <string>

namespace tessera::io {

class FileLock {
 public:
  /// Opens or makes PATH and locks it (flock). Throws Error (data): E150 with the process and host that hold it, and
  /// `what_to_do`; the file cannot be written. held() is false where the file system has no locks.
  FileLock(const std::string& path, const std::string& what_to_do);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  [[nodiscard]] bool held() const { return held_; }
  /// True if the file was not there: where there are no locks, of several processes one finds this.
  [[nodiscard]] bool created() const { return created_; }
  /// What the file said before: the text of a holder that was killed; "" if it was made here.
  [[nodiscard]] const std::string& before() const { return before_; }
  /// What the file says of this holder and of no other one; "": it could not be written.
  [[nodiscard]] const std::string& owner() const { return owner_; }
  /// Makes the text `owner()` and `line`. Throws Error (data).
  void add_line(const std::string& line);
  /// True if the file at the path is the one that is locked: another process may have removed it.
  [[nodiscard]] bool is_in_place() const;

 private:
  std::string path_, before_, owner_;
  int descriptor_ = -1;
  bool held_ = false, created_ = false;
};

}  // namespace tessera::io
