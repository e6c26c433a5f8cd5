// SPDX-License-Identifier: Apache-2.0
// Whole pages by O_DIRECT, the rest through the page cache.
#include "io/file/direct_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "runtime/base/local_work.hpp"

namespace tessera::io {

namespace {

constexpr std::uint64_t page = direct_alignment;
constexpr std::size_t memory_alignment = 512;  // what O_DIRECT asks of addresses on the block devices there are
constexpr std::size_t min_direct_bytes = 16384;
constexpr std::size_t max_deferred_bytes = 8u << 20;
constexpr std::size_t huge_page = 2u << 20;

File open_file(const std::string& path, DirectFile::Access access, Cache cache) {
  return access == DirectFile::Access::read ? File::open_to_read(path, cache) : File::open_to_write(path, cache);
}

}  // namespace

void DirectBuffer::Free::operator()(std::byte* p) const { std::free(p); }

DirectBuffer::DirectBuffer(std::size_t bytes) : bytes_(bytes) {
  const bool huge = bytes >= huge_page;
  const std::size_t capacity = round_up(std::max<std::size_t>(bytes, 1), page);
  data_.reset(static_cast<std::byte*>(
      std::aligned_alloc(huge ? huge_page : page, huge ? round_up(capacity, huge_page) : capacity)));
  if (data_ == nullptr) throw std::bad_alloc();
  if (huge) (void)::madvise(data_.get(), capacity, MADV_HUGEPAGE);
}

DirectFile::DirectFile(const std::string& path, Access access)
    : file_(open_file(path, access, Cache::page)),
      direct_file_(open_file(path, access, Cache::direct)),
      direct_(direct_file_.descriptor() >= 0) {}

std::span<const std::byte> DirectFile::read(std::uint64_t first, std::uint64_t last, DirectBuffer& buffer) {
  const std::uint64_t begin = first / page * page;
  const auto n = static_cast<std::size_t>(last - begin);
  std::byte* const to = buffer.span().data();
  TESSERA_ASSERT(n <= round_up(buffer.span().size(), page), "%zu bytes into %zu", n, buffer.span().size());
  std::size_t got = 0;
  while (direct_ && got < n) {
    const ssize_t more =
        ::pread(direct_file_.descriptor(), to + got, round_up(n - got, page), static_cast<off_t>(begin + got));
    if (more < 0 && errno == EINTR) continue;
    if (more > 0 && got + static_cast<std::size_t>(more) >= n) got = n;
    else if (more > 0 && static_cast<std::uint64_t>(more) % page == 0) got += static_cast<std::size_t>(more);
    else direct_ = false;  // the page cache delivers the rest, or says what is wrong
  }
  note_local_work();
  if (got < n) file_.read_at(begin + got, {to + got, n - got});
  return {to + (first - begin), static_cast<std::size_t>(last - first)};
}

void DirectFile::write(std::uint64_t offset, std::span<const std::byte> bytes, const DirectBuffer& bounce) {
  if (!direct_) return file_.write_at(offset, bytes);
  if (bytes.size() < min_direct_bytes) return defer(offset, bytes);
  const std::uint64_t head = round_up(offset, page) - offset, middle = (bytes.size() - head) / page * page;
  if (!write_pages(offset + head, bytes.subspan(head, middle), bounce)) return file_.write_at(offset, bytes);
  defer(offset, bytes.first(head));
  defer(offset + head + middle, bytes.subspan(head + middle));
}

/// False if the file system refuses O_DIRECT.
bool DirectFile::write_pages(std::uint64_t offset, std::span<const std::byte> bytes, const DirectBuffer& bounce) {
  const bool copy = always_copy_ || reinterpret_cast<std::uintptr_t>(bytes.data()) % memory_alignment != 0;
  if (copy) {
    TESSERA_ASSERT(bytes.size() <= bounce.span().size(), "%zu bytes by way of %zu", bytes.size(), bounce.span().size());
    std::memcpy(bounce.span().data(), bytes.data(), bytes.size());
    bytes = bounce.span().first(bytes.size());
  }
  ssize_t put = 0;
  do put = ::pwrite(direct_file_.descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
  while (put < 0 && errno == EINTR);
  if (put < 0 && errno == EINVAL) {
    if (copy) direct_ = false;
    else always_copy_ = true;
    return !copy && direct_ && write_pages(offset, bytes, bounce);
  }
  if (put < 0) throw system_error("write", path(), errno);
  note_local_work();
  // A short write may end anywhere: the page cache takes the rest, or says what is wrong.
  file_.write_at(offset + static_cast<std::uint64_t>(put), bytes.subspan(static_cast<std::size_t>(put)));
  return true;
}

void DirectFile::defer(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  Deferred deferred{offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
  const std::lock_guard lock(mutex_);
  deferred_.push_back(std::move(deferred));
  deferred_bytes_ += bytes.size();
  if (deferred_bytes_ >= max_deferred_bytes) flush();
}

/// With the mutex held.
void DirectFile::flush() {
  std::ranges::sort(deferred_, {}, &Deferred::offset);
  for (const Deferred& d : deferred_) file_.write_at(d.offset, std::as_bytes(std::span(d.bytes)));
  deferred_.clear();
  deferred_bytes_ = 0;
}

void DirectFile::finish() {
  {
    const std::lock_guard lock(mutex_);
    flush();
  }
  file_.sync();
}

}  // namespace tessera::io
