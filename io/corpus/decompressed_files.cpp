// SPDX-License-Identifier: Apache-2.0
// One rank decompresses a file; a rename makes it visible when it is complete.

#include "io/corpus/decompressed_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "io/data/data_kind.hpp"
#include "io/file/compressed.hpp"
#include "io/file/file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

namespace {

/// Whether a file is compressed, by its first bytes.
bool is_compressed(const std::string& path) {
  const File file = File::open_to_read(path);
  std::string bytes(std::min<std::size_t>(16, file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return compression_of(bytes) != Compression::none;
}

/// A hash of the file's path without links, size and time of change.
std::uint64_t identity_of(const std::string& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) throw system_error("read", path, errno);
  std::uint64_t hash = hash64(std::filesystem::canonical(path).string());
  for (const std::int64_t number : {state.st_size, state.st_mtim.tv_sec, state.st_mtim.tv_nsec})
    hash = mix(hash, static_cast<std::uint64_t>(number));
  return hash;
}

/// Throws where `reserve` bytes would not be left free on the disk; asks the file system after every 64 MiB.
class FreeSpace {
 public:
  FreeSpace(std::string path, std::string directory, std::uint64_t reserve)
      : path_(std::move(path)), directory_(std::move(directory)), reserve_(reserve) {}
  void take(std::uint64_t bytes) {
    constexpr std::uint64_t often = std::uint64_t{64} << 20;
    if (left_ < bytes) {
      const std::uint64_t free = std::filesystem::space(directory_).available;
      left_ = free > reserve_ ? std::min(free - reserve_, often) : 0;
      if (left_ < bytes)
        throw Error(ExitCode::data,
                    path_ + strfmt(": after %lu decompressed bytes too little space is left for the rest", written_),
                    directory_, "Give --cache_dir on a larger disk, or decompress the file yourself");
    }
    left_ -= bytes;
    written_ += bytes;
  }

 private:
  std::string path_, directory_;
  std::uint64_t reserve_, left_ = 0, written_ = 0;
};

}  // namespace

void decompress_files(World& world, std::vector<DataFile>& files, const DecompressOptions& options) {
  std::vector<DataFile*> packed;
  world.run_and_agree([&] {
    for (DataFile& file : files)
      if (data_kind(file.path) != "bin" && is_compressed(file.path)) packed.push_back(&file);
  });
  if (packed.empty()) return;
  std::string place;
  world.run_and_agree([&] {
    place = options.directory();
    if (world.rank() == 0) make_directories(place);
    for (DataFile* file : packed)
      file->decompressed = place + strfmt("/decompressed-%016lx.data", identity_of(file->path));
  });
  world.run_and_agree([&] {
    const std::string temporary = "." + world.host() + "." + std::to_string(::getpid()) + ".tmp";
    for (std::size_t i = 0; i < packed.size(); ++i) {
      const DataFile& file = *packed[i];
      if (static_cast<int>(i % static_cast<std::size_t>(world.size())) != world.rank() || exists(file.decompressed))
        continue;
      FreeSpace space(file.path, place, options.reserve);
      decompress(file.path, file.decompressed + temporary, [&](std::uint64_t bytes) {
        if (options.check) options.check();
        space.take(bytes);
      });
      commit_rename(file.decompressed + temporary, file.decompressed);
      if (options.made) options.made(file);
    }
  });
}

}  // namespace tessera::io
