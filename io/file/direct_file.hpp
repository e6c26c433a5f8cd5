// SPDX-License-Identifier: Apache-2.0
#pragma once
// DirectFile: the one place that reads and writes past the page cache (O_DIRECT). Where the file system has no
// O_DIRECT, the same calls go through the page cache.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/file/file.hpp"

namespace tessera::io {

/// Offsets and lengths of O_DIRECT calls are multiples of this. A page and not a disk sector: bytes of one page must
/// not be written both directly and through the page cache.
inline constexpr std::size_t direct_alignment = 4096;

/// Memory aligned for O_DIRECT, uninitialized, on huge pages where it is large: the kernel pins a write's memory page
/// by page. The system provides pages as they are first used.
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

/// An existing file. Any number of threads may use it at once, each with a buffer of its own.
class DirectFile {
 public:
  enum class Access : unsigned char { read, write };
  /// Throws Error (data) as File does.
  DirectFile(const std::string& path, Access access);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] std::uint64_t size() const { return file_.size(); }
  /// False: the file system has no O_DIRECT, or has refused it.
  [[nodiscard]] bool direct() const { return direct_; }

  /// Reads bytes [first, last) into `buffer`, which has room from the page that holds `first` on, and returns them
  /// there. Throws Error (data), also where the file ends before `last`.
  [[nodiscard]] std::span<const std::byte> read(std::uint64_t first, std::uint64_t last, DirectBuffer& buffer);
  /// Writes whole pages directly: from `bytes` where these are aligned as the pages are, else copied to `bounce`, which
  /// has as much room. Partial pages and small writes are kept in memory for finish(), or until there are 8 MiB of
  /// them: through the page cache each would wait for all direct writes before it. Throws Error (data).
  void write(std::uint64_t offset, std::span<const std::byte> bytes, const DirectBuffer& bounce);
  /// Writes what is kept, and makes all of the file durable. Throws Error (data).
  void finish();

 private:
  struct Deferred {
    std::uint64_t offset = 0;
    std::string bytes;
  };
  void defer(std::uint64_t offset, std::span<const std::byte> bytes);
  void flush();
  bool write_pages(std::uint64_t offset, std::span<const std::byte> bytes, const DirectBuffer& bounce);

  File file_, direct_file_;  // the same file; the second has no descriptor where there is no O_DIRECT
  std::atomic<bool> direct_, always_copy_ = false;
  std::mutex mutex_;  // of what follows
  std::vector<Deferred> deferred_;
  std::size_t deferred_bytes_ = 0;
};

}  // namespace tessera::io
