// SPDX-License-Identifier: Apache-2.0
#pragma once
// The speed of the bare disk: each rank writes or reads its part of one file with O_DIRECT, 8 MiB at a time; a write
// ends with fsync.

#include <string>

#include "io/file/direct_file.hpp"
#include "jobs/bench/tools.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

class RawFile {
 public:
  /// A file of `bytes`, rounded down to a multiple of block_bytes for every rank. Nothing is on disk yet.
  RawFile(World& world, std::string path, std::uint64_t bytes) : world_(world), path_(std::move(path)) {
    const auto ranks = static_cast<std::uint64_t>(world.size());
    part_ = bytes / ranks / block_bytes * block_bytes;
    bytes_ = part_ * ranks;
    for (std::size_t i = 0; i < block_bytes; ++i) buffer_.span()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  }
  ~RawFile() {
    if (world_.rank() == 0) io::remove_quietly(path_);
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Collective: creates the file.
  void create() {
    world_.run_on_rank_0([&] {
      io::File file = io::File::create(path_);
      file.allocate(bytes_);
      file.sync();
    });
  }
  /// Writes this rank's part durably; any thread. Throws Error (data), also where the file system has no O_DIRECT.
  void write_part() const {
    io::DirectFile file(path_, io::DirectFile::Access::write);
    require(file);
    for (std::uint64_t at = 0; at < part_; at += block_bytes) file.write(first() + at, buffer_.span(), bounce_);
    file.finish();
  }
  /// Collective: seconds.
  double write() {
    create();
    return timed(world_, [&] { write_part(); });
  }
  /// Collective: seconds.
  double read() {
    return timed(world_, [&] {
      io::DirectFile file(path_, io::DirectFile::Access::read);
      require(file);
      for (std::uint64_t at = first(); at < first() + part_; at += block_bytes)
        (void)file.read(at, at + block_bytes, bounce_);
    });
  }

 private:
  static constexpr std::size_t block_bytes = 8u << 20;
  [[nodiscard]] std::uint64_t first() const { return static_cast<std::uint64_t>(world_.rank()) * part_; }
  void require(const io::DirectFile& file) const {
    if (!file.direct())
      throw Error(ExitCode::data, "this file system has no O_DIRECT, so the disk cannot be measured", path_,
                  "Choose another --dir");
  }
  World& world_;
  std::string path_;
  std::uint64_t part_ = 0, bytes_ = 0;
  io::DirectBuffer buffer_{block_bytes}, bounce_{block_bytes};
};

}  // namespace tessera::jobs
