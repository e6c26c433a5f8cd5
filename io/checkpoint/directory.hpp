// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checkpoints of a directory: finding them, keeping the newest, and a lock for the run that writes. One process.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/file/file_lock.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

/// "checkpoint-200", and back: only this form, without leading zeros.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> checkpoint_step(const std::string& name);

/// An error text (E134) if the directory is named checkpoint-N and its manifest is of another step than N or 0 (a
/// converted model's); else "".
[[nodiscard]] std::string name_problem(const std::string& directory, std::int64_t step);

/// True if this line of an error about a checkpoint says that it is incomplete or damaged. Not if the file system
/// failed (EIO, EACCES), a later program wrote it (E132, E133), it is of another model (E112, E113, E143, E145), or
/// was saved without the optimizer: that checkpoint may be good, so no older one is taken for it.
[[nodiscard]] bool is_damage(const std::string& line);

struct FoundCheckpoint {
  std::string path;
  std::int64_t step = 0;
  std::string problem;  // why it is incomplete: no manifest, a missing file, a wrong size, …; "" if none of these
};
/// The checkpoint-<step> directories in `directory`, newest step first; symbolic links are not followed.
/// Empty if the directory does not exist.
[[nodiscard]] std::vector<FoundCheckpoint> list_checkpoints(const std::string& directory);

/// The entries v<N>-… of a directory, which --add_version makes: N and path, newest first. Empty if the directory does
/// not exist.
[[nodiscard]] std::vector<std::pair<int, std::string>> list_versions(const std::string& directory);

/// Removes what an interrupted run left: checkpoint-<step>.tmp and .trash. A complete .tmp that was about to replace
/// the checkpoint in .trash (on a file system that cannot exchange names) becomes checkpoint-<step>. Never throws.
void remove_leftovers(const std::string& directory) noexcept;
/// Keeps the newest `limit` verified checkpoints of a directory: written or verified by a run (the file .verified there
/// says which), or read once with every CRC, and unchanged since in inode, size and times. Damaged checkpoints do not
/// count towards the limit.
class Retention {
 public:
  /// `own`: apply() removes only checkpoints that written() has named; others count towards the limit all the same.
  enum class Removes : unsigned char { any, own };
  /// `before_removal`, if there is one, is called before each; what it throws leaves apply().
  explicit Retention(int limit, Removes which = Removes::any, std::function<void()> before_removal = {})
      : limit_(limit), removes_(which), before_removal_(std::move(before_removal)) {}
  /// Marks a checkpoint as written by this process, also on disk.
  void written(const std::string& path);
  /// The newest checkpoint that apply() would have to read; "": none. With verified() it can be read elsewhere, by
  /// several ranks.
  [[nodiscard]] std::string unknown(const std::string& directory, const std::string& best = {});
  /// What a reading of the whole checkpoint has found; kept on disk if it is good.
  void verified(const std::string& path, bool good);
  /// Removes checkpoints older than the newest `limit` (1 or more) verified ones. `best`, if it is verified, stays and
  /// counts as one of them; with a limit of 1 the newest other one stays too if it is newer. Throws Error (data).
  void apply(const std::string& directory, const std::string& best = {});

 private:
  enum class State : unsigned char { unknown, good, damaged };
  [[nodiscard]] State state(const std::string& path);
  [[nodiscard]] bool is_good(const std::string& path);
  void recall(const std::string& directory);
  int limit_;
  Removes removes_;
  std::function<void()> before_removal_;
  std::set<std::string> own_;
  // Path -> inode, size, mtime and ctime of its files when it was found good, or damaged.
  std::map<std::string, std::string> good_, damaged_;
  std::string recalled_;  // the directory whose .verified was read
};

/// Lets one run at a time write under a directory; released with the object, or with the process.
class DirectoryLock {
 public:
  /// Makes DIRECTORY/.lock. Throws Error (data), E150, naming the host and process that hold it. False from held():
  /// the file system has no locks.
  explicit DirectoryLock(const std::string& directory);
  [[nodiscard]] bool held() const { return lock_.held(); }
  /// What .lock says of this run and of no other one; "": it could not be written.
  [[nodiscard]] const std::string& owner() const { return lock_.owner(); }

 private:
  FileLock lock_;
};

/// Throws Error (data), E150, if another run has taken the directory since (DirectoryLock::owner; "" is not checked). A
/// rank that was cut off or stopped calls it before it renames or removes anything: where locks are not supported, or
/// are lost with the network, the others may have resumed elsewhere. Any process.
void check_owner(const std::string& directory, const std::string& owner);
/// True for the error that check_owner throws of another run, also as other ranks get it.
[[nodiscard]] bool is_taken(const Error& error);

}  // namespace tessera::io
