// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mapping: memory taken from the system in one piece; ProcessMaps: what the system says a process has mapped.

#include <cstddef>
#include <utility>
#include <vector>

namespace tessera {

inline constexpr std::size_t page_bytes = 4096;
[[nodiscard]] constexpr std::size_t round_to_pages(std::size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/// What one of `sharers` processes is charged for memory that they share: equal parts, the remainder for the first.
[[nodiscard]] constexpr std::size_t part_of(std::size_t bytes, int sharers, int index) {
  const auto count = static_cast<std::size_t>(sharers);
  return bytes / count + (index == 0 ? bytes % count : 0);
}

/// Zero-filled pages between two inaccessible guard pages. The guards keep the kernel from merging the mapping with a
/// neighbor, so that /proc/self/maps has an entry for it alone; they also catch writes outside it.
class Mapping {
 public:
  Mapping() = default;
  /// Private memory, in huge pages where the kernel has them. Where the kernel can name mappings, /proc/PID/maps shows
  /// [anon:NAME]. Throws Error (does_not_fit).
  [[nodiscard]] static Mapping anonymous(std::size_t bytes, const char* name);
  /// Memory of a file, shared with whoever maps it. Throws Error (does_not_fit) if the file is not of that many pages.
  [[nodiscard]] static Mapping of_file(int file, std::size_t bytes);
  ~Mapping() { release(); }
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Mapping(std::size_t bytes, int file);
  void release() noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;  // whole pages
};

/// The accessible mappings of this process, as /proc/self/maps lists them at construction.
class ProcessMaps {
 public:
  ProcessMaps();
  /// Size of the mapping that contains `address`, up to the next gap or guard page; 0 if nothing is mapped there.
  [[nodiscard]] std::size_t bytes_at(const void* address) const;

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  std::vector<Range> ranges_;  // ascending; neighbors are joined
};

}  // namespace tessera
