// SPDX-License-Identifier: Apache-2.0
// Fuzz target: data sets. The first byte chooses .bin, .jsonl, .json or text; accepted data are read completely.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "io/data/dataset.hpp"
#include "runtime/base/error.hpp"

namespace {
/// A file in memory under a name with this ending: a link in a directory of this process.
std::string file_of(const char* ending, const std::uint8_t* data, std::size_t size) {
  static const std::string folder = [] {
    std::string name = "/tmp/tessera-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    return name;
  }();
  static const int fd = ::memfd_create("input", 0);
  const std::string path = folder + "/input" + ending;
  static_cast<void>(::symlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.c_str()));
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  return path;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  const char* ending = data[0] == 'b' ? ".bin" : data[0] == 'j' ? ".jsonl" : data[0] == 'a' ? ".json" : ".txt";
  try {
    const auto dataset = io::open_dataset({file_of(ending, data + 1, size - 1)});
    std::vector<std::int32_t> ids(static_cast<std::size_t>(dataset.tokens->size()));
    dataset.tokens->read(0, dataset.tokens->size(), ids.data());
    if (ids.empty() || ids.size() > size) std::abort();
    for (const auto id : ids)
      if (id < 0) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
