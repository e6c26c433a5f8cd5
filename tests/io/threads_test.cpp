// SPDX-License-Identifier: Apache-2.0
// Work on threads where the system refuses to start one: an error, not the end of the process.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

#include "io/file/thread_tasks.hpp"
#include "runtime/comm/world.hpp"
#include "tests/io/files.hpp"

namespace {
std::atomic<int> threads_left{-1};  // that may start; negative: any number
}

/// In place of the C library's, for all libraries of this program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*),
                              void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.load() == 0) return EAGAIN;
  if (threads_left.load() > 0) --threads_left;
  return create(thread, attributes, work, argument);
}

namespace tessera {
namespace {

class Threads : public ::testing::Test {
 protected:
  ~Threads() override { threads_left = -1; }
};

TEST_F(Threads, TasksEndWithAnErrorWhenOneCannotStart) {
  for (const int left : {0, 1, 2}) {
    std::vector<int> states(4);
    std::atomic<int> done{0};
    threads_left = left;
    test::expect_error(ExitCode::data, "the system refuses another thread: Resource temporarily unavailable",
                       [&] { io::run_tasks(1000, states, [&](int&, std::size_t) { ++done; }); });
    EXPECT_LE(done, 1000);
  }
  threads_left = -1;
  std::vector<int> states(4);
  std::atomic<int> done{0};
  io::run_tasks(1000, states, [&](int&, std::size_t) { ++done; });
  EXPECT_EQ(done, 1000);
}

TEST_F(Threads, RanksThatHaveBegunEndWhenAnotherCannotStart) {
  threads_left = 2;
  test::expect_error(ExitCode::data, "the system refuses another thread",
                     [] { run_local(4, [](World& world) { (void)world.sum(1); }); });
}

}  // namespace
}  // namespace tessera
