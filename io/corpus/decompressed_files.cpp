// SPDX-License-Identifier: Apache-2.0
// One rank decompresses a file; a rename makes it visible when it is complete.

#include "io/corpus/decompressed_files.hpp"

#include <unistd.h>

#include <algorithm>

#include "io/data/data_kind.hpp"
#include "io/file/compressed.hpp"
#include "io/file/file.hpp"
#include "io/file/free_space.hpp"

namespace tessera::io {

namespace {

/// Whether a file is compressed, by its first bytes.
bool is_compressed(const std::string& path) {
  const File file = File::open_to_read(path);
  std::string bytes(std::min<std::size_t>(16, file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return compression_of(bytes) != Compression::none;
}

}  // namespace

void decompress_files(World& world, std::vector<DataFile>& files, const DecompressOptions& options) {
  std::vector<DataFile*> packed;
  world.run_and_agree([&] {
    for (DataFile& file : files)
      if (!is_command(file.path) && data_kind(file.path) != "bin" && is_compressed(file.path)) packed.push_back(&file);
  });
  if (packed.empty()) return;
  std::string place;
  world.run_and_agree([&] {
    place = options.directory();
    if (world.rank() == 0) make_directories(place);
    for (DataFile* file : packed) file->copy = place + strfmt("/decompressed-%016lx.data", file_identity(file->path));
  });
  world.run_and_agree([&] {
    const std::string temporary = "." + world.host() + "." + std::to_string(::getpid()) + ".tmp";
    for (std::size_t i = 0; i < packed.size(); ++i) {
      const DataFile& file = *packed[i];
      if (static_cast<int>(i % static_cast<std::size_t>(world.size())) != world.rank() || exists(file.copy)) continue;
      FreeSpace space(place, options.reserve, [&](std::uint64_t written) {
        return Error(
            ExitCode::data,
            file.path + strfmt(": after %lu decompressed bytes too little space is left for the rest", written), place,
            "Give --cache_dir on a larger disk, or decompress the file yourself");
      });
      decompress(file.path, file.copy + temporary, [&](std::uint64_t bytes) {
        if (options.check) options.check();
        space.take(bytes);
      });
      commit_rename(file.copy + temporary, file.copy);
      if (options.made) options.made(file);
    }
  });
}

}  // namespace tessera::io
