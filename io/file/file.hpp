#pragma once
// Files of the operating system, with errors that name them: descriptors, whole reads and writes, mappings. No formats.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace tessera::io {

/// Error (data): "cannot VERB PATH: what the system says". `error_number` is an errno.
[[nodiscard]] Error system_error(const std::string& verb, const std::string& path, int error_number);
/// A name out of a file, for a message: in quotes, control bytes as '?', at most 120 bytes.
[[nodiscard]] std::string quote_name(std::string_view name);

/// Through the page cache, or past it (O_DIRECT: offsets, lengths and memory aligned).
enum class Cache : unsigned char { page, direct };

/// An open descriptor. Owns it.
class File {
 public:
  /// Opens a regular file for reading; never blocks. Throws Error (data): not there, a directory, a FIFO or device,
  /// unreadable. Cache::direct: a File without descriptor (-1) where the file system has no such way.
  [[nodiscard]] static File open_to_read(const std::string& path, Cache cache = Cache::page);
  /// Creates a new file (mode 0666 less the umask), replacing what stands there. Throws Error (data).
  [[nodiscard]] static File create(const std::string& path);
  /// Opens an existing file for writing. Throws Error (data). Cache::direct: as open_to_read.
  [[nodiscard]] static File open_to_write(const std::string& path, Cache cache = Cache::page);

  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return fd_; }
  /// Bytes, as the file system says now.
  [[nodiscard]] std::uint64_t size() const;
  /// Exactly these bytes. Throws Error (data), also where the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// Takes the space on disk now, where the file system can, so that a full disk shows before the work. Sets the size.
  void allocate(std::uint64_t bytes) const;
  /// On stable storage.
  void sync() const;
  /// Reports what a delayed write only says on closing.
  void close();

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

/// A whole file as bytes in memory that the system pages in on demand. Whoever shortens the file meanwhile ends the
/// program.
class MappedFile {
 public:
  /// Throws Error (data) as File::open_to_read does.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Moves `from` over `to` and makes the directory's entry durable. Throws Error (data).
void commit_rename(const std::string& from, const std::string& to);
/// A directory's entries on stable storage. Throws Error (data).
void sync_directory(const std::string& path);
/// Removes a file if it is there; never throws.
void remove_quietly(const std::string& path) noexcept;
/// The directory and its parents. Throws Error (data).
void make_directories(const std::string& path);
/// Removes a directory and everything in it that can be removed; follows no link; never throws.
void remove_tree_quietly(const std::string& path) noexcept;
/// Renames to NAME.trash, then removes that; follows no link. Throws Error (data).
void remove_directory(const std::string& path);
/// Renames the directory `from` to `to`, durably. If `to` exists, the two names are exchanged at once, and the old
/// directory is renamed to `backup`, or removed if that is "". Throws Error (data).
void publish_directory(const std::string& from, const std::string& to, const std::string& backup);

}  // namespace tessera::io
