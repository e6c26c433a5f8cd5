#pragma once
// Which checkpoints a directory holds, how many stay, and who may write there. One process; no World.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::io {

/// "checkpoint-200", and back: only that form, no leading zeros.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> checkpoint_step(const std::string& name);

/// E134 where the last part of the path is checkpoint-N and the manifest is of another step (but
/// 0, a converted model's); else "".
[[nodiscard]] std::string name_problem(const std::string& directory, std::int64_t step);

struct FoundCheckpoint {
  std::string path;
  std::int64_t step = 0;
  std::string problem;  // why it is not whole: no manifest, a file missing or of another size, …; "" if it is, as far
                        // as sizes tell
};
/// The checkpoint-<step> directories in `directory`, newest step first; symbolic links are not followed.
/// Empty if there is no such directory.
[[nodiscard]] std::vector<FoundCheckpoint> list_checkpoints(const std::string& directory);

/// Removes what a dead run left: checkpoint-<step>.tmp and .trash. Never throws.
void remove_leftovers(const std::string& directory) noexcept;
/// Keeps the newest `limit` verified checkpoints of a directory. Verified: written by this process, or read through
/// with every CRC, once, for as long as the files' inode, size and times stay what they were. What is damaged does not
/// count; older than those that do, it goes.
class Retention {
 public:
  explicit Retention(int limit) : limit_(limit) {}
  /// This process has written it.
  void written(const std::string& path);
  /// Removes what is older than the newest `limit` (1 or more). Throws Error (data).
  void apply(const std::string& directory);

 private:
  [[nodiscard]] bool verified(const std::string& path);
  int limit_;
  std::map<std::string, std::string> known_;  // path -> inode, size, mtime and ctime of its files
};

/// Held by the one run that writes under a directory; released with it, or with the process.
class DirectoryLock {
 public:
  /// Makes DIRECTORY/.lock. Throws Error (data), E150, naming the host and process that hold it. False from held():
  /// the file system has no locks.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  [[nodiscard]] bool held() const { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

}  // namespace tessera::io
