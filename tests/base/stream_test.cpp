// SPDX-License-Identifier: Apache-2.0
// Stream and Event in all three modes: order, waits, errors, capacity, no allocation after construction.
#include "runtime/base/stream.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "alloc_counter.hpp"

namespace tessera {
namespace {

using Mode = Stream::Mode;

/// A log that tasks append to. Written by one stream at a time.
struct Journal {
  std::vector<std::int64_t> entries;
  Journal() { entries.reserve(100000); }
  static void write(void* journal, std::int64_t number) { static_cast<Journal*>(journal)->entries.push_back(number); }
};

void fail(void*, std::int64_t number) { throw std::runtime_error("task " + std::to_string(number)); }

struct Gate {
  std::atomic<bool> open{false};
  static void pass(void* gate, std::int64_t) {
    while (!static_cast<Gate*>(gate)->open) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
};

class StreamModes : public testing::TestWithParam<Mode> {};

TEST_P(StreamModes, RunsInOrder) {
  Journal journal;
  Stream stream("s", GetParam());
  for (int i = 0; i < 500; ++i) stream.enqueue(Journal::write, &journal, i);
  stream.synchronize();
  ASSERT_EQ(journal.entries.size(), 500u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(journal.entries[static_cast<std::size_t>(i)], i);
}

TEST_P(StreamModes, MoreThanCapacity) {
  Journal journal;
  Stream stream("s", GetParam(), 4);
  for (int i = 0; i < 100; ++i) stream.enqueue(Journal::write, &journal, i);
  stream.synchronize();
  ASSERT_EQ(journal.entries.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(journal.entries[static_cast<std::size_t>(i)], i);
}

TEST_P(StreamModes, EventPassesWhenWorkBeforeItHasRun) {
  Journal journal;
  Stream stream("s", GetParam());
  Event event;
  EXPECT_TRUE(event.passed());  // never recorded
  event.wait();
  stream.enqueue(Journal::write, &journal, 1);
  stream.record(event);
  event.wait();
  EXPECT_TRUE(event.passed());
  ASSERT_EQ(journal.entries, std::vector<std::int64_t>{1});
  stream.enqueue(Journal::write, &journal, 2);
  stream.record(event);  // again
  event.wait();
  EXPECT_EQ(journal.entries, (std::vector<std::int64_t>{1, 2}));
}

TEST_P(StreamModes, OneStreamWaitsForAnother) {
  Journal journal;
  Stream first("first", GetParam()), second("second", GetParam());
  Event done[50], turned[50];
  for (int i = 0; i < 50; ++i) {
    if (i > 0) first.wait(turned[i - 1]);
    first.enqueue(Journal::write, &journal, 2 * i);
    first.record(done[i]);
    second.wait(done[i]);
    second.enqueue(Journal::write, &journal, 2 * i + 1);
    second.record(turned[i]);
  }
  turned[49].wait();
  ASSERT_EQ(journal.entries.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(journal.entries[static_cast<std::size_t>(i)], i);
}

TEST_P(StreamModes, AnEventRecordedAnewDoesNotMoveAnEarlierWait) {
  Journal journal;
  Stream first("first", GetParam()), second("second", GetParam());
  Event event, end;
  first.enqueue(Journal::write, &journal, 1);
  first.record(event);
  second.wait(event);
  second.enqueue(Journal::write, &journal, 2);
  second.record(end);
  end.wait();
  first.enqueue(Journal::write, &journal, 3);
  first.record(event);
  event.wait();
  EXPECT_EQ(journal.entries, (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_P(StreamModes, FirstErrorIsRethrownAndTheRestSkipped) {
  Journal journal;
  Stream stream("s", GetParam());
  bool thrown_early = false;
  try {
    stream.enqueue(fail, nullptr, 7);
    stream.enqueue(Journal::write, &journal, 1);
  } catch (const std::runtime_error&) { thrown_early = true; }
  EXPECT_EQ(thrown_early, GetParam() == Mode::immediate);
  try {
    stream.synchronize();
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) { EXPECT_STREQ(error.what(), "task 7"); }
  Event event;
  stream.record(event);
  EXPECT_THROW(event.wait(), std::runtime_error);
  EXPECT_TRUE(journal.entries.empty());
}

TEST_P(StreamModes, NothingIsAllocatedOnceMade) {
  Journal journal;
  Stream stream("s", GetParam(), 64), other("t", GetParam(), 64);
  Event event, back;
  const auto round = [&](int i) {
    stream.enqueue(Journal::write, &journal, i);
    stream.record(event);
    other.wait(event);
    other.enqueue(Journal::write, &journal, -i);
    other.record(back);
    stream.wait(back);
    back.wait();
  };
  round(0);
  stream.synchronize();
  const std::int64_t before = alloc_count();
  for (int i = 1; i < 1000; ++i) round(i);
  stream.synchronize();
  other.synchronize();
  EXPECT_EQ(alloc_count(), before);
  EXPECT_EQ(journal.entries.size(), 2000u);
}

INSTANTIATE_TEST_SUITE_P(Modes, StreamModes, testing::Values(Mode::immediate, Mode::threaded, Mode::deferred),
                         [](const auto& mode) {
                           return mode.param == Mode::immediate  ? "immediate"
                                  : mode.param == Mode::threaded ? "threaded"
                                                                 : "deferred";
                         });

TEST(Stream, ThreadedRunsElsewhereAndDoesNotBlockTheHost) {
  Gate gate;
  Journal journal;
  Stream stream("s", Mode::threaded);
  Event event;
  stream.enqueue(Gate::pass, &gate, 0);
  stream.enqueue(Journal::write, &journal, 1);
  stream.record(event);
  EXPECT_FALSE(event.passed());
  gate.open = true;
  event.wait();
  EXPECT_TRUE(event.passed());
  EXPECT_EQ(journal.entries, std::vector<std::int64_t>{1});
}

TEST(Stream, ThreadedDestructorRunsOut) {
  Journal journal;
  {
    Stream stream("s", Mode::threaded);
    for (int i = 0; i < 200; ++i) stream.enqueue(Journal::write, &journal, i);
  }
  EXPECT_EQ(journal.entries.size(), 200u);
}

TEST(Stream, DeferredRunsOnlyWhatIsDemanded) {
  Journal journal;
  Stream stream("s", Mode::deferred), other("t", Mode::deferred);
  Event first, second;
  stream.enqueue(Journal::write, &journal, 1);
  stream.record(first);
  stream.enqueue(Journal::write, &journal, 2);
  stream.record(second);
  other.enqueue(Journal::write, &journal, 9);
  EXPECT_TRUE(journal.entries.empty());
  EXPECT_FALSE(first.passed());
  EXPECT_TRUE(journal.entries.empty());  // asking runs nothing
  first.wait();
  EXPECT_EQ(journal.entries, std::vector<std::int64_t>{1});
  EXPECT_FALSE(second.passed());
  second.wait();
  EXPECT_EQ(journal.entries, (std::vector<std::int64_t>{1, 2}));
}

TEST(Stream, DeferredWaitIsTransitive) {
  Journal journal;
  Stream a("a", Mode::deferred), b("b", Mode::deferred), c("c", Mode::deferred);
  Event from_a, from_b, from_c;
  a.enqueue(Journal::write, &journal, 1);
  a.record(from_a);
  a.enqueue(Journal::write, &journal, 100);
  b.wait(from_a);
  b.enqueue(Journal::write, &journal, 2);
  b.record(from_b);
  c.wait(from_b);
  c.enqueue(Journal::write, &journal, 3);
  c.record(from_c);
  from_c.wait();
  EXPECT_EQ(journal.entries, (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(Stream, DeferredWithoutAWaitIsLateAndDropped) {
  Journal journal;
  {
    Stream stream("s", Mode::deferred);
    stream.enqueue(Journal::write, &journal, 1);
  }
  EXPECT_TRUE(journal.entries.empty());
}

TEST(Stream, AnErrorTravelsThroughAnEvent) {
  Stream first("first", Mode::threaded), second("second", Mode::threaded);
  Journal journal;
  Event event;
  first.enqueue(fail, nullptr, 3);
  first.record(event);
  second.wait(event);
  second.enqueue(Journal::write, &journal, 1);
  EXPECT_THROW(second.synchronize(), std::runtime_error);
  EXPECT_TRUE(journal.entries.empty());
}

TEST(Stream, AnIdleThreadSleeps) {
  Stream stream("s", Mode::threaded);
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(used, 0.1);  // a spinning thread would use 0.2 s
}

}  // namespace
}  // namespace tessera
