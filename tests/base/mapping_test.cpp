// SPDX-License-Identifier: Apache-2.0
// Mappings, and their sizes in /proc/self/maps.

#include "runtime/base/mapping.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/arena.hpp"
#include "runtime/base/error.hpp"

namespace tessera {
namespace {

TEST(Mapping, NeighborsAreMeasuredSeparately) {
  std::vector<Mapping> mappings;
  const std::vector<std::size_t> sizes = {1, 4096, 4097, 3 << 20, 4096, 4096};
  for (const std::size_t bytes : sizes) mappings.push_back(Mapping::anonymous(bytes, "tessera test"));
  const ProcessMaps maps;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(maps.bytes_at(mappings[i].data()), round_to_pages(sizes[i]));
    EXPECT_EQ(maps.bytes_at(mappings[i].data() + sizes[i] - 1), round_to_pages(sizes[i]));
    EXPECT_EQ(maps.bytes_at(mappings[i].data() - 1), 0u);  // the guard page
  }
  mappings.erase(mappings.begin());
  EXPECT_EQ(ProcessMaps().bytes_at(mappings[0].data()), 4096u);
}

TEST(Mapping, FilesAreOfTheSizeThatIsMapped) {
  const int file = memfd_create("tessera test", 0);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 8192), 0);
  EXPECT_THROW((void)Mapping::of_file(file, 8193), Error);
  EXPECT_THROW((void)Mapping::of_file(file, 4096), Error);
  const Mapping first = Mapping::of_file(file, 8000), second = Mapping::of_file(file, 8192);
  close(file);
  first.data()[7999] = std::byte{7};
  EXPECT_EQ(second.data()[7999], std::byte{7});
  EXPECT_EQ(ProcessMaps().bytes_at(first.data()), 8192u);
}

TEST(Mapping, PartsAddUpToTheTotal) {
  for (const std::size_t bytes : {4096u, 12288u, 4097u}) {
    std::size_t sum = 0;
    for (int i = 0; i < 3; ++i) sum += part_of(bytes, 3, i);
    EXPECT_EQ(sum, bytes);
  }
}

TEST(ArenaMemory, MeasuredEqualsPlanned) {
  const std::vector<ArenaSlot> slots = {{.name = "a", .category = Category::params, .bytes = 100},
                                        {.name = "b", .category = Category::params, .bytes = 4096 - 64},
                                        {.name = "c", .category = Category::grads, .bytes = 4096}};
  const MemoryTable planned = planned_memory(slots), measured = Arena(slots, nullptr).measure();
  EXPECT_EQ(planned.by_category[static_cast<int>(Category::params)], 8192u);
  EXPECT_EQ(planned.by_category[static_cast<int>(Category::grads)], 8192u);  // the canary takes a page of its own
  for (int c = 0; c < num_categories; ++c) EXPECT_EQ(measured.by_category[c], planned.by_category[c]);
  for (int m = 0; m < num_memories; ++m) EXPECT_EQ(measured.by_memory[m], planned.by_memory[m]);
}

}  // namespace
}  // namespace tessera
