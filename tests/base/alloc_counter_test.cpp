// SPDX-License-Identifier: Apache-2.0
// Tests of the allocation counter and of attribution to libraries, which other tests rely on.
#include "alloc_counter.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "alloc_library.hpp"
#include "runtime/base/error.hpp"

namespace tessera {
namespace {

/// Keeps the compiler from leaving an allocation out.
void* kept(void* memory) {
  asm volatile("" : "+r"(memory));
  return memory;
}

TEST(AllocCounter, CountsEveryKind) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's hook does not see every kind; nothing counts on it there";
#endif
  const std::int64_t before = alloc_count(), bytes = alloc_bytes();
  void* memory = nullptr;
  std::free(kept(std::malloc(100)));
  std::free(kept(std::calloc(10, 10)));
  std::free(kept(std::realloc(nullptr, 100)));
  std::free(kept(std::aligned_alloc(64, 128)));
  ASSERT_EQ(posix_memalign(&memory, 64, 100), 0);
  std::free(kept(memory));
  ::operator delete(kept(::operator new(100)));
  ::operator delete (kept(::operator new (128, std::align_val_t{64})), std::align_val_t{64});
  EXPECT_EQ(alloc_count() - before, 7);
  EXPECT_EQ(alloc_bytes() - bytes, 756);
}

TEST(AllocCounter, NothingIsNothing) {
  const std::int64_t before = alloc_count();
  volatile int x = 0;
  for (int i = 0; i < 1000; ++i) x = x + i;
  EXPECT_EQ(alloc_count(), before);
}

TEST(AllocWatch, WhatTheExecutableAllocatesIsTesseras) {
  AllocWatch watch;
  std::free(kept(std::malloc(100)));
  EXPECT_EQ(watch.tessera(), 1);
  std::string text(100, 'x');  // operator new, in libstdc++
  kept(text.data());
  EXPECT_EQ(watch.tessera(), 2);
  std::thread([] { std::free(kept(std::malloc(100))); }).join();
  EXPECT_GE(watch.tessera(), 4);  // the thread's state, and its block
  EXPECT_EQ(watch.libraries(), 0);
  EXPECT_EQ(watch.peak_library_bytes(), 0);
}

TEST(AllocWatch, WhatATesseraLibraryAllocatesIsTesseras) {
  AllocWatch watch;
  const Error error(ExitCode::usage, "one", "two");
  EXPECT_GE(watch.tessera(), 1);
  EXPECT_EQ(watch.libraries(), 0);
}

TEST(AllocWatch, WhatAnotherLibraryAllocatesIsThatLibrarys) {
  AllocWatch watch;
  void* const block = kept(library_allocate(1000));
  EXPECT_EQ(watch.tessera(), 0);
  EXPECT_EQ(watch.libraries(), 1);
  EXPECT_EQ(watch.library_bytes(), 1000);
  std::free(block);
  EXPECT_EQ(watch.library_bytes(), 0);
  EXPECT_EQ(watch.peak_library_bytes(), 1000);
}

TEST(AllocWatch, WhatALibraryCallsBackIsTesseras) {
  AllocWatch watch;
  library_call([] { std::free(kept(std::malloc(100))); });
  EXPECT_EQ(watch.tessera(), 1);
  EXPECT_EQ(watch.libraries(), 0);
}

TEST(AllocCounter, OtherThreadsCountForTheProcessOnly) {
  const std::int64_t all = alloc_count();
  std::int64_t here_in_thread = -1, here = 0;
  std::thread thread([&] {
    const std::int64_t start = alloc_count_here();
    for (int i = 0; i < 5; ++i) std::free(kept(std::malloc(32)));
    here_in_thread = alloc_count_here() - start;
  });
  here = alloc_count_here();
  thread.join();
  EXPECT_EQ(alloc_count_here(), here);
  EXPECT_EQ(here_in_thread, 5);
  EXPECT_GE(alloc_count() - all, 5);
}

}  // namespace
}  // namespace tessera
