// SPDX-License-Identifier: Apache-2.0
// What an allocation takes of a described device, while other processes allocate and free on it.
#include "runtime/base/measured_allocation.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// A card of 1 GiB that gives blocks of 2 MiB, and whose other users act at each reading.
class Card {
 public:
  std::function<std::ptrdiff_t(int reading)> others = [](int) { return std::ptrdiff_t{0}; };  // what they take now
  std::size_t given = 0;                                                                      // to the caller
  int allocations = 0;

  [[nodiscard]] MeasuredDevice device(std::size_t bytes, std::string uuid = {}) {
    const std::size_t blocks = (bytes + 2 * mib - 1) / (2 * mib) * 2 * mib;
    return {.uuid = std::move(uuid),
            .read =
                [this] {
                  const std::lock_guard lock(mutex_);
                  used_ += static_cast<std::size_t>(others(readings_++));
                  return MemoryReading{.free = 1024 * mib - used_, .total = 1024 * mib};
                },
            .allocate =
                [this, blocks] {
                  const std::lock_guard lock(mutex_);
                  used_ += blocks, given += blocks, ++allocations;
                  return &memory_;
                },
            .release =
                [this, blocks](std::byte*) {
                  const std::lock_guard lock(mutex_);
                  used_ -= blocks, given -= blocks;
                }};
  }

 private:
  std::mutex mutex_;
  std::byte memory_{};
  std::size_t used_ = 0;
  int readings_ = 0;
};

TEST(MeasuredAllocation, is_what_the_driver_gave_and_not_what_was_asked_for) {
  Card card;
  const MeasuredAllocation measured = measure_allocation(3 * mib, card.device(3 * mib));
  EXPECT_EQ(measured.taken, 4 * mib);
  EXPECT_EQ(card.given, 4 * mib) << "one block is kept";
  EXPECT_EQ(card.allocations, 2) << "two that agree";
}

TEST(MeasuredAllocation, another_process_that_allocates_between_two_readings_does_not_count) {
  for (int when = 0; when < 6; ++when) {
    Card card;
    card.others = [when](int reading) { return reading == when ? std::ptrdiff_t(6 * mib) : 0; };
    EXPECT_EQ(measure_allocation(2 * mib, card.device(2 * mib)).taken, 2 * mib) << "at reading " << when;
    EXPECT_EQ(card.given, 2 * mib);
  }
}

TEST(MeasuredAllocation, another_process_that_frees_between_two_readings_does_not_count) {
  for (const std::ptrdiff_t freed : {2, 4, 32}) {  // more than the block: free memory has grown
    Card card;
    card.others = [freed](int reading) {
      return static_cast<std::ptrdiff_t>(mib) * (reading == 0 ? 64 : reading == 1 ? -freed : 0);
    };
    EXPECT_EQ(measure_allocation(4 * mib, card.device(4 * mib)).taken, 4 * mib) << freed;
  }
}

TEST(MeasuredAllocation, the_same_wrong_answer_twice_is_refused_if_it_is_less_than_the_block) {
  Card card;
  card.others = [](int reading) {  // frees 2 MiB in the first two attempts, each time
    return static_cast<std::ptrdiff_t>(mib) * (reading == 0 ? 64 : reading == 1 || reading == 3 ? -2 : 0);
  };
  EXPECT_EQ(measure_allocation(4 * mib, card.device(4 * mib)).taken, 4 * mib);
}

TEST(MeasuredAllocation, a_card_that_never_rests_gives_the_smallest_possible_answer) {
  Card card;
  card.others = [](int reading) { return static_cast<std::ptrdiff_t>(mib) * 2 * (reading % 7); };
  EXPECT_EQ(measure_allocation(2 * mib, card.device(2 * mib)).taken, 2 * mib);
  EXPECT_LE(card.allocations, 16);
}

TEST(MeasuredAllocation, ranks_that_share_a_card_measure_one_at_a_time) {
  Card card;
  const std::string uuid = "a-test-of-" + std::to_string(::getpid());
  std::vector<std::thread> ranks;
  std::vector<std::size_t> taken(4);
  for (std::size_t& mine : taken)
    ranks.emplace_back([&] {
      MeasuredDevice device = card.device(8 * mib, uuid);
      device.read = [read = device.read] {  // slow, so that attempts of different ranks would overlap
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return read();
      };
      mine = measure_allocation(8 * mib, device).taken;
    });
  for (std::thread& thread : ranks) thread.join();
  EXPECT_EQ(taken, std::vector<std::size_t>(4, 8 * mib));
  EXPECT_EQ(card.given, 32 * mib);
}

}  // namespace
}  // namespace tessera
