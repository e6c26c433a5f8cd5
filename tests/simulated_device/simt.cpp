// SPDX-License-Identifier: Apache-2.0
// Runs the threads of a block as fibers (Boost.Context).
#include "tests/simulated_device/simt.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/error.hpp"

namespace tessera::simulated {

Place place;

namespace {

enum class Order : unsigned char { ascending, descending, shuffled };
Order order;

/// The order of the next launch.
void choose_order() {
  static constexpr std::string_view names[] = {"ascending", "descending", "shuffled"};
  static const int named = [] {
    const char* const name = std::getenv("TESSERA_SIMULATED_THREADS");
    if (name == nullptr) return -1;
    const auto at = std::ranges::find(names, std::string_view(name)) - names;
    TESSERA_ASSERT(at < 3, "TESSERA_SIMULATED_THREADS=%s", name);
    return static_cast<int>(at);
  }();
  static int launches = 0;
  order = static_cast<Order>(named >= 0 ? named : launches++ % 3);
}

/// Whether the barrier is left out (TESSERA_SIMULATED_WITHOUT).
bool left_out(const char* file, int line) {
  static const char* const name = std::getenv("TESSERA_SIMULATED_WITHOUT");
  return name != nullptr && (std::string(file) + ":" + std::to_string(line)).ends_with(name);
}

struct Copy {
  void* to;
  const void* from;
  void run() const {
    if (from != nullptr) std::memcpy(to, from, 16);
    else std::memset(to, 0, 16);
  }
};

/// A stack that runs one thread after another.
struct Fiber {
  boost::context::fiber own, scheduler;
  struct Thread* thread = nullptr;
};

struct Thread {
  enum class State : unsigned char { fresh, ready, at_barrier, in_warp, ended };
  dim3 index;
  int number = 0;
  State state = State::fresh;
  Fiber* fiber = nullptr;
  std::vector<Copy> open;                 // copies that belong to no group yet
  std::deque<std::vector<Copy>> pending;  // groups of copies
};

struct Warp {
  std::vector<Thread*> lanes;
  const char* instruction = nullptr;
  int arrived = 0;
  alignas(16) std::byte in[warp_lanes * lane_bytes], out[warp_lanes * lane_bytes];
};

constexpr std::size_t most_shared = std::size_t{99} * 1024, stack_bytes = std::size_t{256} * 1024;

/// Dynamic shared memory that ends where a page without access begins.
class SharedMemory {
 public:
  SharedMemory() {
    void* const mapped = mmap(nullptr, bytes_ + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TESSERA_ASSERT(mapped != MAP_FAILED);
    first_ = static_cast<std::byte*>(mapped);
    TESSERA_ASSERT(mprotect(first_ + bytes_, 4096, PROT_NONE) == 0);
  }
  std::byte* take(std::size_t bytes) {
    std::byte* const begin = first_ + bytes_ - (bytes + 127) / 128 * 128;
    std::memset(begin, 0xff, static_cast<std::size_t>(first_ + bytes_ - begin));
    return begin;
  }

 private:
  static constexpr std::size_t bytes_ = (most_shared + 4095) / 4096 * 4096;
  std::byte* first_;
};

/// The block that runs, and what is kept from block to block. The simulated device runs one kernel at a time.
class Block {
 public:
  static Block& current() {
    static Block& one = *new Block;
    return one;
  }

  void run(const Launch& launch, const char* kernel, const std::function<void()>& body) {
    begin(launch, kernel, body);
    while (ended_ < threads_.size()) {
      const std::size_t before = steps_;
      for (Warp* const warp : sequence_) run_warp(*warp);
      if (steps_ == before) stuck();
    }
  }

  Thread& thread() { return *running_; }
  std::byte* shared() { return dynamic_; }
  void static_shared(void* variable, std::size_t bytes) {
    if (statics_.insert(variable).second) std::memset(variable, 0xff, bytes);
  }

  void barrier() {
    running_->state = Thread::State::at_barrier;
    ++at_barrier_;
    release_barrier();
    if (running_->state == Thread::State::at_barrier) suspend();
  }

  void instruction(const WarpInstruction& of) {
    Thread& own = *running_;
    Warp& warp = warps_[static_cast<std::size_t>(own.number / warp_lanes)];
    const int lane = own.number % warp_lanes;
    if (warp.arrived == 0) warp.instruction = of.name;
    TESSERA_ASSERT(warp.instruction == of.name, "%s: lanes of a warp are at %s and at %s", kernel_, warp.instruction,
                   of.name);
    std::memcpy(warp.in + lane * lane_bytes, of.in, of.in_bytes);
    if (++warp.arrived == warp_lanes) {
      of.execute(warp.in, warp.out);
      warp.arrived = 0;
      for (Thread* const other : warp.lanes)
        if (other != &own) other->state = Thread::State::ready;
    } else {
      own.state = Thread::State::in_warp;
      suspend();
    }
    std::memcpy(of.out, warp.out + lane * lane_bytes, of.out_bytes);
  }

 private:
  void begin(const Launch& launch, const char* kernel, const std::function<void()>& body) {
    kernel_ = kernel;
    body_ = &body;
    const dim3 size = launch.block;
    const std::size_t count = std::size_t{size.x} * size.y * size.z;
    if (threads_.size() != count) {
      threads_.assign(count, Thread{});
      warps_ = std::vector<Warp>((count + warp_lanes - 1) / warp_lanes);
      for (std::size_t i = 0; i < count; ++i) warps_[i / warp_lanes].lanes.push_back(&threads_[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto n = static_cast<unsigned>(i);
      threads_[i].number = static_cast<int>(i);
      threads_[i].index = {n % size.x, n / size.x % size.y, n / size.x / size.y};
      threads_[i].state = Thread::State::fresh;
      threads_[i].open.clear();
      threads_[i].pending.clear();
    }
    sequence_.clear();
    for (Warp& warp : warps_) warp.arrived = 0, sequence_.push_back(&warp);
    const auto arrange = [&](auto& list) {
      if (order == Order::descending) std::ranges::reverse(list);
      else if (order == Order::shuffled) std::ranges::shuffle(list, random_);
    };
    arrange(sequence_);
    lanes_.resize(warp_lanes);
    std::iota(lanes_.begin(), lanes_.end(), 0);
    arrange(lanes_);
    ended_ = at_barrier_ = 0;
    statics_.clear();
    dynamic_ = memory_.take(launch.shared_bytes);
  }

  /// Runs the warp's threads until each waits or has ended.
  void run_warp(Warp& warp) {
    for (bool again = true; again;) {
      again = false;
      for (const int lane : lanes_) {
        if (static_cast<std::size_t>(lane) >= warp.lanes.size()) continue;
        Thread& thread = *warp.lanes[static_cast<std::size_t>(lane)];
        if (thread.state != Thread::State::fresh && thread.state != Thread::State::ready) continue;
        resume(thread);
        again = true;
      }
    }
  }

  void resume(Thread& thread) {
    ++steps_;
    if (thread.state == Thread::State::fresh) thread.fiber = idle_fiber(), thread.fiber->thread = &thread;
    thread.state = Thread::State::ready;
    running_ = &thread;
    place.thread = thread.index;
    Fiber& fiber = *thread.fiber;
    fiber.own = std::move(fiber.own).resume();
    if (thread.state != Thread::State::ended) return;
    idle_.push_back(&fiber);
    thread.fiber = nullptr;
    ++ended_;
    release_barrier();
  }

  /// Back to the scheduler, until the running thread is resumed.
  void suspend() {
    Fiber& fiber = *running_->fiber;
    fiber.scheduler = std::move(fiber.scheduler).resume();
  }

  /// Threads that have ended are not waited for.
  void release_barrier() {
    if (at_barrier_ == 0 || at_barrier_ + ended_ < threads_.size()) return;
    at_barrier_ = 0;
    for (Thread& thread : threads_)
      if (thread.state == Thread::State::at_barrier) thread.state = Thread::State::ready;
  }

  Fiber* idle_fiber() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      Fiber* const made = fibers_.back().get();
      made->own = boost::context::fiber(std::allocator_arg, boost::context::fixedsize_stack(stack_bytes),
                                        [this, made](boost::context::fiber&& scheduler) {
                                          made->scheduler = std::move(scheduler);
                                          for (;;) {
                                            (*body_)();
                                            made->thread->state = Thread::State::ended;
                                            made->scheduler = std::move(made->scheduler).resume();
                                          }
                                          return std::move(made->scheduler);
                                        });
      return made;
    }
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }

  [[noreturn]] void stuck() const {
    std::size_t in_warp = 0;
    const char* at = "";
    for (const Thread& thread : threads_)
      if (thread.state == Thread::State::in_warp)
        ++in_warp, at = warps_[static_cast<std::size_t>(thread.number / warp_lanes)].instruction;
    TESSERA_ASSERT(false, "%s: of %zu threads %zu have ended, %zu wait at __syncthreads and %zu at %s", kernel_,
                   threads_.size(), ended_, at_barrier_, in_warp, at);
    std::abort();
  }

  const char* kernel_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Warp*> sequence_;
  std::vector<int> lanes_;  // the order within a warp
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Thread* running_ = nullptr;
  std::size_t ended_ = 0, at_barrier_ = 0, steps_ = 0;
  std::set<void*> statics_;
  SharedMemory memory_;
  std::byte* dynamic_ = nullptr;
  std::mt19937 random_{20260101};  // NOLINT(bugprone-random-generator-seed): runs repeat
};

std::size_t shared_allowed = 0;

}  // namespace

void allow_shared(std::size_t bytes) { shared_allowed = bytes; }

void check_launch(const Launch& launch, const char* kernel) {
  const dim3 b = launch.block, g = launch.grid;
  TESSERA_ASSERT(b.x * b.y * b.z >= 1 && std::size_t{b.x} * b.y * b.z <= 1024 && b.z <= 64,
                 "%s: a block of %u x %u x %u", kernel, b.x, b.y, b.z);
  TESSERA_ASSERT(g.x >= 1 && g.y >= 1 && g.z >= 1 && g.x < 1U << 31 && g.y < 1U << 16 && g.z < 1U << 16,
                 "%s: a grid of %u x %u x %u", kernel, g.x, g.y, g.z);
  TESSERA_ASSERT(
      launch.shared_bytes <= std::max(std::size_t{48} * 1024, shared_allowed) && launch.shared_bytes <= most_shared,
      "%s: %zu bytes of shared memory", kernel, launch.shared_bytes);
  shared_allowed = 0;
}

void run_grid(const Launch& launch, const char* kernel, const std::function<void()>& body) {
  choose_order();
  place.block_dim = launch.block;
  place.grid_dim = launch.grid;
  const std::size_t blocks = std::size_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto n = static_cast<unsigned>(order == Order::descending ? blocks - 1 - i : i);
    place.block = {n % launch.grid.x, n / launch.grid.x % launch.grid.y, n / launch.grid.x / launch.grid.y};
    Block::current().run(launch, kernel, body);
  }
}

void* dynamic_shared() { return Block::current().shared(); }
void static_shared(void* variable, std::size_t bytes) { Block::current().static_shared(variable, bytes); }

void sync_threads(const char* file, int line) {
  if (!left_out(file, line)) Block::current().barrier();
}

void sync_warp(const char* file, int line) {
  struct Nothing {
    static void run(std::span<const char, warp_lanes>, std::span<char, warp_lanes> out) {
      std::ranges::fill(out, '\0');
    }
  };
  if (!left_out(file, line)) of_warp<char, Nothing>("__syncwarp", '\0');
}

void warp_instruction(const WarpInstruction& instruction) { Block::current().instruction(instruction); }

void copy_async(void* to, const void* from) {
  const Copy copy{to, from};
  if (order == Order::descending) copy.run();
  else Block::current().thread().open.push_back(copy);
}
void commit_copies() {
  Thread& own = Block::current().thread();
  own.pending.push_back(std::move(own.open));
  own.open.clear();
}
void await_copies(int groups_pending, const char* file, int line) {
  if (left_out(file, line)) return;
  Thread& own = Block::current().thread();
  for (; own.pending.size() > static_cast<std::size_t>(groups_pending); own.pending.pop_front())
    for (const Copy& copy : own.pending.front()) copy.run();
}

void require_all_lanes(unsigned mask) {
  TESSERA_ASSERT(mask == 0xffffffffU, "an instruction of the lanes 0x%x of a warp", mask);
}
int lane() { return Block::current().thread().number % warp_lanes; }

void fill(void* to, int value, std::size_t bytes, StreamView stream) {
  tessera::cuda::fill(to, static_cast<unsigned char>(value), bytes, stream);
}

}  // namespace tessera::simulated
