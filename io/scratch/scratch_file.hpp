// SPDX-License-Identifier: Apache-2.0
#pragma once
// ScratchFile: a file for what a process keeps on disk while it runs. Nobody reads it afterwards.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/file/direct_file.hpp"
#include "io/file/file.hpp"

namespace tessera::io {

/// How a scratch file reaches the disk.
enum class ScratchMedium : unsigned char {
  direct,      // past the page cache
  page_cache,  // the file system has no O_DIRECT: what is read and written also takes memory of the system
  memory,      // the file system is in memory (tmpfs, ramfs): nothing is saved by it
};

/// DIRECTORY/tessera-scratch.HOST.PID.rank<N>.tmp, locked (flock) while this object exists and removed by its
/// destructor. Its first page says in plain text what it is and who has written it. Any number of threads may use it.
class ScratchFile {
 public:
  static constexpr std::uint64_t header_bytes = direct_alignment;

  /// Makes the directory and the file and allocates `bytes` after the header, so that a full disk is reported here.
  /// Throws Error (data) that names `option`.
  ScratchFile(const std::string& directory, int rank, std::uint64_t bytes, const std::string& option);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] ScratchMedium medium() const { return medium_; }

  /// Offsets are from the end of the header. Offset, length and address are multiples of direct_alignment. Short reads
  /// and writes are continued. Return 0, or the errno of the call that failed; EIO where the file ends too early.
  [[nodiscard]] int read(std::uint64_t offset, std::span<std::byte> bytes) const;
  [[nodiscard]] int write(std::uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  void create(const std::string& directory, int rank, const std::string& option);
  void allocate(std::uint64_t bytes, const std::string& directory, int rank, const std::string& option) const;
  void write_header(int rank);
  void remove() const noexcept;

  // The same file: the first has the lock, the others move the bytes, with O_DIRECT where there is any.
  File file_, reader_, writer_;
  ScratchMedium medium_ = ScratchMedium::direct;
};

/// Removes the scratch files in `directory` that no process has locked: those of runs that were killed. Files of other
/// names, or without a scratch file's header, stay; so does all where the file system has no locks. Returns how many
/// were removed; never throws.
int remove_scratch_leftovers(const std::string& directory) noexcept;

/// Removes the scratch files of this process, which ends without destructors: by an error in a step, or by a signal.
/// May be called in a signal handler.
void remove_own_scratch_files() noexcept;

}  // namespace tessera::io
