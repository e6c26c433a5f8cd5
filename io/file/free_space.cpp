// SPDX-License-Identifier: Apache-2.0
#include "io/file/free_space.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "io/file/file.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

FreeSpace::FreeSpace(std::string directory, std::uint64_t reserve, std::function<Error(std::uint64_t)> too_little)
    : directory_(std::move(directory)), reserve_(reserve), too_little_(std::move(too_little)) {}

void FreeSpace::take(std::uint64_t bytes) {
  constexpr std::uint64_t often = std::uint64_t{64} << 20;
  if (left_ < bytes) {
    const std::uint64_t free = std::filesystem::space(directory_).available;
    left_ = free > reserve_ ? std::min(free - reserve_, often) : 0;
    if (left_ < bytes) throw too_little_(written_);
  }
  left_ -= bytes;
  written_ += bytes;
}

std::uint64_t file_identity(const std::string& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) throw system_error("read", path, errno);
  std::uint64_t hash = hash64(std::filesystem::canonical(path).string());
  for (const std::int64_t number :
       {state.st_size, state.st_mtim.tv_sec, state.st_mtim.tv_nsec, state.st_ctim.tv_sec, state.st_ctim.tv_nsec})
    hash = hash64(static_cast<std::uint64_t>(number), hash);
  return hash;
}

}  // namespace tessera::io
