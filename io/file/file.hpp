// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files and directories of the operating system, with errors that name them: reads, writes, mappings, atomic renames.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace tessera::io {

/// Error (data): "cannot VERB PATH: what the system says". `error_number` is an errno.
[[nodiscard]] Error system_error(const std::string& verb, const std::string& path, int error_number);
/// A name read from a file, for a message: in quotes, control bytes as '?', at most 120 bytes.
[[nodiscard]] std::string quote_name(std::string_view name);

/// The least multiple of `to` that is not below n.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

/// Through the page cache, or past it (O_DIRECT).
enum class Cache : unsigned char { page, direct };

/// Owns an open descriptor.
class File {
 public:
  /// Opens a regular file for reading; never blocks. Throws Error (data): not there, a directory, a FIFO or device,
  /// unreadable. Cache::direct: a File without descriptor (-1) if the file system has no O_DIRECT.
  [[nodiscard]] static File open_to_read(const std::string& path, Cache cache = Cache::page);
  /// Creates a file (mode 0666 less the umask), or truncates an existing one. Throws Error (data).
  [[nodiscard]] static File create(const std::string& path);
  /// Opens an existing file for writing. Throws Error (data). Cache::direct: as open_to_read.
  [[nodiscard]] static File open_to_write(const std::string& path, Cache cache = Cache::page);

  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return fd_; }
  /// Bytes, asked of the file system.
  [[nodiscard]] std::uint64_t size() const;
  /// Reads exactly these bytes. Throws Error (data), also if the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// Sets the size and allocates the space where the file system can, so that a full disk is reported before the work.
  void allocate(std::uint64_t bytes) const;
  /// Makes the file durable (fsync).
  void sync() const;
  /// Throws the error of a delayed write that the system reports only here.
  void close();

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

/// Maps a file into memory; the system reads pages on demand. If another process shortens the file meanwhile, reading
/// it ends this program (SIGBUS).
class MappedFile {
 public:
  /// Throws Error (data) as File::open_to_read does.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] std::string_view bytes() const { return {data_, size_}; }
  /// Bytes [offset, offset + length) are not needed soon: their pages no longer count as memory of this process. They
  /// can be read again.
  void release(std::size_t offset, std::size_t length) const;

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// True if something is there, a link's target included; false also where the system does not let us ask.
[[nodiscard]] bool exists(const std::string& path);
/// The directory that `path` is in: "." if it names none.
[[nodiscard]] std::string directory_of(const std::string& path);

/// Renames `from` to `to`, replacing it, durably. Throws Error (data).
void commit_rename(const std::string& from, const std::string& to);
/// Makes a directory's entries durable. Throws Error (data).
void sync_directory(const std::string& path);
/// Removes a file if it exists; never throws.
void remove_quietly(const std::string& path) noexcept;
/// Makes the directory and its parents. Throws Error (data).
void make_directories(const std::string& path);
/// Removes a directory and everything in it that can be removed; follows no link; never throws.
void remove_tree_quietly(const std::string& path) noexcept;
/// Renames to NAME.trash, then removes that; follows no link. Throws Error (data).
void remove_directory(const std::string& path);
/// Renames the directory `from` to `to`, durably. If `to` exists, the two names are exchanged at once, and the old
/// directory is renamed to `backup`, or removed if that is "". Throws Error (data).
void publish_directory(const std::string& from, const std::string& to, const std::string& backup);

}  // namespace tessera::io
