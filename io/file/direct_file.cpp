// The aligned middle by O_DIRECT, what is left by the page cache.
#include "io/file/direct_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace tessera::io {

namespace {

constexpr std::uint64_t mask = direct_alignment - 1;

bool aligned(const void* memory) { return (reinterpret_cast<std::uintptr_t>(memory) & mask) == 0; }

}  // namespace

void DirectBuffer::Free::operator()(std::byte* p) const { std::free(p); }

DirectBuffer::DirectBuffer(std::size_t bytes)
    : bytes_(bytes),
      data_(static_cast<std::byte*>(std::aligned_alloc(direct_alignment, (bytes + mask) & ~std::size_t{mask}))) {
  if (data_ == nullptr) throw std::bad_alloc();
}

DirectFile DirectFile::open_to_read(const std::string& path) {
  return {File::open_to_read(path), File::open_to_read(path, Cache::direct)};
}

DirectFile DirectFile::open_to_write(const std::string& path) {
  return {File::open_to_write(path), File::open_to_write(path, Cache::direct)};
}

void DirectFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  // What this way does not give (a short read, EINVAL), the other does, or says why.
  while (direct() && bytes.size() >= direct_alignment && (offset & mask) == 0 && aligned(bytes.data())) {
    const ssize_t got =
        ::pread(direct_.descriptor(), bytes.data(), bytes.size() & ~std::size_t{mask}, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  file_.read_at(offset, bytes);
}

void DirectFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  const auto head =
      static_cast<std::size_t>(std::min<std::uint64_t>((direct_alignment - (offset & mask)) & mask, bytes.size()));
  file_.write_at(offset, bytes.first(head));
  bytes = bytes.subspan(head);
  offset += head;
  while (direct() && bytes.size() >= direct_alignment && (offset & mask) == 0 && aligned(bytes.data())) {
    const ssize_t put =
        ::pwrite(direct_.descriptor(), bytes.data(), bytes.size() & ~std::size_t{mask}, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  file_.write_at(offset, bytes);
}

}  // namespace tessera::io
