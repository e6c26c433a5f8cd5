#pragma once
// DirectFile: bytes of a file past the page cache where the file system can (O_DIRECT), through it elsewhere.
// One system call wide; no threads.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "io/file/file.hpp"

namespace tessera::io {

/// What O_DIRECT wants offsets, lengths and memory to be multiples of. A page, and not a sector: bytes of
/// one page must not go both ways.
inline constexpr std::size_t direct_alignment = 4096;

/// Memory that is aligned for it.
class DirectBuffer {
 public:
  explicit DirectBuffer(std::size_t bytes);
  [[nodiscard]] std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

/// May be used by several threads at once.
class DirectFile {
 public:
  /// Throws Error (data) as File does.
  [[nodiscard]] static DirectFile open_to_read(const std::string& path);
  /// An existing file.
  [[nodiscard]] static DirectFile open_to_write(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] std::uint64_t size() const { return file_.size(); }
  /// False: the file system has no O_DIRECT.
  [[nodiscard]] bool direct() const { return direct_.descriptor() >= 0; }
  /// Exactly these bytes; whole pages past the cache, if `offset` and memory are aligned. Throws Error (data).
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// Whole pages past the cache, if memory and offset are equally far from alignment; the ends through it.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  void sync() const { file_.sync(); }

 private:
  DirectFile(File file, File direct) : file_(std::move(file)), direct_(std::move(direct)) {}
  File file_, direct_;  // the same file; direct_ is empty where there is no O_DIRECT
};

}  // namespace tessera::io
