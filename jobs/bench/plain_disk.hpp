// SPDX-License-Identifier: Apache-2.0
#pragma once
// PlainDisk: what a directory's disk does by plain pread and pwrite with O_DIRECT. Scratch files are compared with it.

#include <cstdint>
#include <string>

#include "io/file/direct_file.hpp"
#include "io/file/file.hpp"
#include "io/scratch/scratch_store.hpp"

namespace tessera::jobs {

inline constexpr int raw_disk_threads = io::ScratchStore::default_threads;

/// Whether request `number` of a mix reads; `share` of the requests do, evenly spread.
[[nodiscard]] bool is_bench_read(double share, std::uint64_t number);
void fill_bench_buffer(const io::DirectBuffer& buffer);

/// A file of this rank, removed by the destructor.
class PlainDisk {
 public:
  struct Spec {
    std::string directory;
    int rank = 0;
    std::uint64_t bytes = 0;   // of the file
    std::uint64_t memory = 0;  // requests take turns in as much: as in a run, what they move is in no cache of the CPU
    std::string option;        // that names the directory
  };
  /// Throws Error (data): there is no space, or no O_DIRECT.
  explicit PlainDisk(const Spec& spec);
  ~PlainDisk();
  PlainDisk(const PlainDisk&) = delete;
  /// Moves `bytes` bytes (0: as many as the file has) by requests of `request` bytes, of `threads` threads; `share` of
  /// them read. Goes on in the file where the call before has ended, and from its end to its begin.
  void move(double share, int threads, std::uint64_t request, std::uint64_t bytes = 0);

 private:
  std::uint64_t bytes_, at_ = 0;
  io::DirectBuffer memory_;
  io::File reader_, writer_;
};

}  // namespace tessera::jobs
