// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/mapping.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "runtime/base/error.hpp"

#ifndef PR_SET_VMA  // Linux 5.17
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

namespace tessera {

Mapping::Mapping(std::size_t bytes, int file) : bytes_(round_to_pages(bytes)) {
  void* const reserved =
      mmap(nullptr, bytes_ + 2 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) throw Error(ExitCode::does_not_fit, strfmt("cannot map %zu bytes", bytes_));
  void* const wanted = static_cast<std::byte*>(reserved) + page_bytes;
  const int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (mmap(wanted, bytes_, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED) {
    munmap(reserved, bytes_ + 2 * page_bytes);
    throw Error(ExitCode::does_not_fit, strfmt("cannot allocate %zu bytes", bytes_));
  }
  data_ = static_cast<std::byte*>(wanted);
}

void Mapping::release() noexcept {
  if (data_ != nullptr) munmap(data_ - page_bytes, bytes_ + 2 * page_bytes);
}

Mapping Mapping::anonymous(std::size_t bytes, const char* name) {
  Mapping mapping(bytes, -1);
  madvise(mapping.data_, mapping.bytes_, MADV_HUGEPAGE);
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, mapping.data_, mapping.bytes_, name);  // refused by older kernels
  return mapping;
}

Mapping Mapping::of_file(int file, std::size_t bytes) {
  struct stat status {};
  if (fstat(file, &status) != 0 || static_cast<std::size_t>(status.st_size) != round_to_pages(bytes))
    throw Error(ExitCode::does_not_fit,
                strfmt("a shared segment of %ld bytes instead of %zu", status.st_size, round_to_pages(bytes)));
  return {bytes, file};
}

ProcessMaps::ProcessMaps() {
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    std::uint64_t begin = 0, end = 0;
    char readable = '-';
    if (std::sscanf(line.c_str(), "%lx-%lx %c", &begin, &end, &readable) != 3 || readable != 'r') continue;
    if (!ranges_.empty() && ranges_.back().end == begin) ranges_.back().end = end;
    else ranges_.push_back({begin, end});
  }
}

std::size_t ProcessMaps::bytes_at(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto after = std::ranges::upper_bound(ranges_, at, {}, &Range::begin);
  if (after == ranges_.begin() || std::prev(after)->end <= at) return 0;
  return std::prev(after)->end - std::prev(after)->begin;
}

}  // namespace tessera
