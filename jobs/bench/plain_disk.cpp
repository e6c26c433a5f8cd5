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

PlainDisk::PlainDisk(const Spec& spec) : bytes_(spec.bytes), memory_(static_cast<std::size_t>(spec.memory)) {
  fill_bench_buffer(memory_);
  const std::string path = strfmt("%s/tessera-bench-raw.%d.rank%d", spec.directory.c_str(), ::getpid(), spec.rank);
  io::File::create(path).allocate(bytes_);
  reader_ = io::File::open_to_read(path, io::Cache::direct);
  writer_ = io::File::open_to_write(path, io::Cache::direct);
  if (reader_.descriptor() < 0 || writer_.descriptor() < 0) {
    io::remove_quietly(path);
    throw Error(ExitCode::data, "this file system has no O_DIRECT, so the disk cannot be measured", path,
                "Choose another " + spec.option);
  }
}

PlainDisk::~PlainDisk() { io::remove_quietly(writer_.path()); }

void PlainDisk::move(double share, int threads, std::uint64_t request, std::uint64_t bytes) {
  const std::uint64_t requests = (bytes == 0 ? bytes_ : bytes) / request, all = bytes_ / request, first = at_ / request;
  const std::uint64_t buffers = memory_.span().size() / request;
  std::vector<int> workers(static_cast<std::size_t>(threads));
  io::run_tasks(static_cast<std::size_t>(requests), workers, [&](int, std::size_t i) {
    const std::uint64_t at = (first + i) % all * request;
    const auto buffer =
        memory_.span().subspan(static_cast<std::size_t>(i % buffers * request), static_cast<std::size_t>(request));
    if (is_bench_read(share, i)) reader_.read_at(at, buffer);
    else writer_.write_at(at, buffer);
  });
  at_ = (first + requests) % all * request;
}

}  // namespace tessera::jobs
