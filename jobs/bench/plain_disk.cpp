// SPDX-License-Identifier: Apache-2.0
#include "jobs/bench/plain_disk.hpp"

#include <unistd.h>

#include <vector>

#include "io/file/thread_tasks.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

bool is_bench_read(double share, std::uint64_t number) {
  const auto reads_before = [share](std::uint64_t n) {
    return static_cast<std::uint64_t>(static_cast<double>(n) * share + 1e-9);
  };
  return reads_before(number + 1) > reads_before(number);
}

void fill_bench_buffer(const io::DirectBuffer& buffer) {
  for (std::size_t i = 0; i < buffer.span().size(); ++i)
    buffer.span()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
}

PlainDisk::PlainDisk(const std::string& directory, int rank, std::uint64_t bytes, const std::string& option)
    : bytes_(bytes) {
  const std::string path = strfmt("%s/tessera-bench-raw.%d.rank%d", directory.c_str(), ::getpid(), rank);
  io::File::create(path).allocate(bytes);
  reader_ = io::File::open_to_read(path, io::Cache::direct);
  writer_ = io::File::open_to_write(path, io::Cache::direct);
  if (reader_.descriptor() < 0 || writer_.descriptor() < 0) {
    io::remove_quietly(path);
    throw Error(ExitCode::data, "this file system has no O_DIRECT, so the disk cannot be measured", path,
                "Choose another " + option);
  }
}

PlainDisk::~PlainDisk() { io::remove_quietly(writer_.path()); }

void PlainDisk::move(double share, int threads, std::uint64_t request, std::uint64_t bytes) {
  std::vector<io::DirectBuffer> buffers;
  for (int t = 0; t < threads; ++t) fill_bench_buffer(buffers.emplace_back(static_cast<std::size_t>(request)));
  const std::uint64_t requests = (bytes == 0 ? bytes_ : bytes) / request, all = bytes_ / request, first = at_ / request;
  io::run_tasks(static_cast<std::size_t>(requests), buffers, [&](io::DirectBuffer& buffer, std::size_t i) {
    const std::uint64_t at = (first + i) % all * request;
    if (is_bench_read(share, i)) reader_.read_at(at, buffer.span());
    else writer_.write_at(at, buffer.span());
  });
  at_ = (first + requests) % all * request;
}

}  // namespace tessera::jobs
