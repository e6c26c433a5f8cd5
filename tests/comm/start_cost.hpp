// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an agreement of many ranks at a run's start costs a rank: messages, and CPU time of its thread.

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <ctime>

#include "runtime/comm/message_count.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::test {

class StartCost {
 public:
  /// On each rank: does it, and counts. What other threads of the rank do is not counted.
  void measure(const World& world, const auto& agreement) {
    const comm::MessageCount sent_before = comm::message_count(world);
    const std::int64_t before = cpu_ns();
    agreement();
    raise(most_ns_, cpu_ns() - before);
    const comm::MessageCount sent = comm::message_count(world) - sent_before;
    raise(most_messages_, static_cast<std::int64_t>(sent.messages));
    ++ranks_;
  }
  /// Less than a second of CPU on each of `ranks` ranks, and messages: none if `steps` is 0, else some, and at most
  /// `steps` for each doubling of the ranks.
  void expect_small(const char* what, int ranks, int steps) const {
    const int log2 = std::bit_width(static_cast<unsigned>(ranks - 1));
    EXPECT_EQ(ranks_.load(), ranks) << what;
    EXPECT_LT(most_ns_.load(), 1'000'000'000) << what;
    EXPECT_GT(most_ns_.load(), 0) << what;
    EXPECT_EQ(most_messages_.load() > 0, steps > 0) << what;
    EXPECT_LE(most_messages_.load(), steps * log2) << what;
    testing::Test::RecordProperty(std::string(what) + " messages", std::to_string(most_messages_.load()));
    testing::Test::RecordProperty(std::string(what) + " CPU us", std::to_string(most_ns_.load() / 1000));
  }

 private:
  static std::int64_t cpu_ns() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1'000'000'000 + used.tv_nsec;
  }
  static void raise(std::atomic<std::int64_t>& most, std::int64_t value) {
    for (std::int64_t now = most; value > now && !most.compare_exchange_weak(now, value);) {}
  }
  std::atomic<std::int64_t> most_ns_{0}, most_messages_{0};
  std::atomic<int> ranks_{0};
};

}  // namespace tessera::test
