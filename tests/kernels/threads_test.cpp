// SPDX-License-Identifier: Apache-2.0
// Instruction sets and threads: what can be set, what is refused; every part runs once.
#include "kernels/threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/host/parallel.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

TEST(Threads, SetAndReadBack) {
  const Setting setting(1);
  set_threads(3);
#ifdef _OPENMP
  EXPECT_EQ(threads(), 3);
#else
  EXPECT_EQ(threads(), 1);
#endif
  EXPECT_THROW(set_threads(0), std::logic_error);
}

TEST(Isa, PortableIsAlwaysThereAndTheRestIsRefusedByName) {
  const auto sets = instruction_sets();
  ASSERT_FALSE(sets.empty());
#ifndef TESSERA_ONE_ISA
  EXPECT_EQ(sets.front(), Isa::portable);
#endif
  const Setting setting(1);
  for (const Isa set : all_isas) {
    if (std::find(sets.begin(), sets.end(), set) != sets.end()) {
      set_isa(set);
      EXPECT_EQ(isa(), set);
      continue;
    }
    try {
      set_isa(set);
      FAIL() << name_of(set);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_NE(error.line().find(name_of(set)), std::string::npos);
    }
  }
}

TEST(Parallel, RangesCoverEachElementOnce) {
  for (const int num : {1, 2, 3, 7}) {
    const Setting setting(num);
    for (const std::int64_t n : {0, 1, 2, 5, 16, 17, 100, 1000})
      for (const std::int64_t grain : {1, 4, 16, 300}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
        host::parallel_ranges(n, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)]++;
        });
        for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
      }
  }
}

#ifdef _OPENMP
TEST(Parallel, UsesTheThreads) {
  const Setting setting(3);
  std::atomic<int> inside{0}, most{0};
  // Each part waits for the others: this ends only if three run concurrently.
  host::parallel_parts(3, [&](std::int64_t) {
    ++inside;
    for (int i = 0; i < 2000 && inside < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (inside == 3) most = 3;
  });
  EXPECT_EQ(most.load(), 3);
}
#endif

TEST(Parallel, TypesWithoutKernelsAreABug) {
  EXPECT_THROW(host::dispatch_float(DType::i32, [](auto) {}), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
