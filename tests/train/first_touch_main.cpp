// SPDX-License-Identifier: Apache-2.0
// Run by mpirun on one host: which rank touches the pages of shared windows first. /proc/self/numa_maps counts the
// pages that this process has touched of each mapping, by NUMA node, and not those that others have; mincore says
// whether anybody has. After the start every page is there, and a rank has touched those of its own part and no other.
//   train_first_touch
// Exits with 77 where the kernel has no numa_maps, or puts windows in huge pages.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "kernels/threads.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/mapping.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

/// Pages, of all NUMA nodes, that this process has touched of the mapping that begins at `address`.
std::size_t touched_pages(const void* address) {
  std::ifstream file("/proc/self/numa_maps");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (std::stoull(word, nullptr, 16) != reinterpret_cast<std::uintptr_t>(address)) continue;
    std::size_t pages = 0;
    while (words >> word) {
      const std::size_t equals = word.find('=');
      if (word[0] == 'N' && equals != std::string::npos) pages += std::stoull(word.substr(equals + 1));
    }
    return pages;
  }
  throw Error(ExitCode::internal, strfmt("no mapping begins at %p", address), "/proc/self/numa_maps");
}

std::size_t pages_in_memory(void* address, std::size_t bytes) {
  std::vector<unsigned char> pages(round_to_pages(bytes) / page_bytes);
  if (::mincore(address, bytes, pages.data()) != 0) throw Error(ExitCode::internal, "mincore fails");
  return static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
}

/// A region that ranks share, and this rank's part of it.
struct Window {
  std::string name;
  std::byte* base = nullptr;
  std::size_t part = 0;  // bytes of each rank
  int index = 0, sharers = 0;
  [[nodiscard]] std::size_t bytes() const { return part * static_cast<std::size_t>(sharers); }
  [[nodiscard]] std::size_t all_pages() const { return round_to_pages(bytes()) / page_bytes; }
  /// Those that hold a byte of this rank's part.
  [[nodiscard]] std::size_t own_pages() const {
    const std::size_t first = part * static_cast<std::size_t>(index);
    return round_to_pages(first + part) / page_bytes - first / page_bytes;
  }
};

/// Those of more than two pages a rank.
std::vector<Window> windows_of(train::Trainer& trainer) {
  std::vector<Window> windows;
  for (const ArenaSlot& slot : trainer.arena().slots()) {
    if (slot.placement != Placement::node && slot.placement != Placement::peers_read) continue;
    const bool own =
        slot.placement == Placement::peers_read;  // its canary is shared too, and the address is the part's
    Window window{slot.name, trainer.arena().data(slot.name), slot.bytes + (own ? Arena::canary_bytes : 0), slot.index,
                  slot.sharers};
    if (own) window.base -= window.part * static_cast<std::size_t>(slot.index);
    if (slot.sharers > 1 && window.part > 2 * page_bytes) windows.push_back(window);  // pages tell ranks apart
  }
  return windows;
}

/// The number of windows that are not as they should be.
int check(World& world, const Variant& variant) {
  const models::Model model = models::make(config_json({.hidden = 96, .vocab = 512}), "test", variant.dtype);
  train::Trainer trainer(world, options_of(model, variant, 1));
  trainer.initialize();
  world.barrier();
  int wrong = 0, read = 0;
  const std::vector<Window> windows = windows_of(trainer);
  for (const Window& window : windows) {
    const std::size_t touched = touched_pages(window.base), there = pages_in_memory(window.base, window.bytes());
    if (touched == window.own_pages() && there == window.all_pages()) continue;
    std::printf("rank %d, %s, %s: touched %zu pages, %zu are its own; %zu of %zu are in memory\n", world.rank(),
                variant.str().c_str(), window.name.c_str(), touched, window.own_pages(), there, window.all_pages());
    ++wrong;
  }
  // The counts see what a rank does later: it reads parameters and gradients of the others.
  world.barrier();
  const RandomTokens tokens(400, 512);
  const io::Sampler sampler(40, true, 1);
  (void)trainer.step(tokens, sampler, 0, variant.global_batch);
  for (const Window& window : windows)
    if (touched_pages(window.base) > window.own_pages()) ++read;
  if (read != static_cast<int>(windows.size())) {
    std::printf("rank %d, %s: of %zu windows, %d were read by this rank in a step\n", world.rank(),
                variant.str().c_str(), windows.size(), read);
    ++wrong;
  }
  if (windows.size() < 3) ++wrong, std::printf("%s: %zu windows\n", variant.str().c_str(), windows.size());
  return static_cast<int>(world.max(wrong));
}

/// Why pages cannot be counted here; "" if they can.
std::string not_countable() {
  if (!std::ifstream("/proc/self/numa_maps")) return "the kernel has no /proc/self/numa_maps";
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);)
    if (line.find(" /dev/shm ") != std::string::npos && line.find("huge=") != std::string::npos &&
        line.find("huge=never") == std::string::npos)
      return "/dev/shm has huge pages";
  return "";
}

int check_all(World& world) {
  int wrong = 0;
  for (const char* strategy : {"1", "2", "3"})
    for (const DType dtype : {DType::f32, DType::bf16})
      wrong +=
          check(world, {.world = world.size(), .strategy = strategy, .global_batch = world.size(), .dtype = dtype});
  if (world.rank() == 0) std::printf("%d ranks: %d windows are wrong\n", world.size(), wrong);
  return wrong;
}

}  // namespace
}  // namespace tessera::test

int main() {
  using namespace tessera;
  if (const std::string why = test::not_countable(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  kernels::set_threads(1);
  WorldOptions options;
  options.comm = WorldOptions::Comm::node;
  options.comm_timeout_s = 60;
  try {
    const auto world = bootstrap(options);
    try {
      return test::check_all(*world) == 0 ? 0 : 1;
    } catch (const Error& error) { world->abort(error); }
  } catch (const Error& error) {
    log::error_here(error.line());
    return static_cast<int>(error.code());
  }
}
