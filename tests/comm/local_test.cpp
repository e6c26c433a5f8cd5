// SPDX-License-Identifier: Apache-2.0
// Communicators between threads: the code of processes, with mailboxes in place of MPI and plain memory in place of
// shared windows.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "checks.hpp"
#include "runtime/comm/node_members.hpp"
#include "tests/comm/delayed_world.hpp"

using namespace tessera;

namespace {

struct Case {
  int ranks;
  bool copies;
  int ranks_per_node;
};

class Local : public testing::TestWithParam<Case> {};

TEST_P(Local, EveryCollectiveBitForBit) {
  const auto c = GetParam();
  run_local(
      c.ranks, [](World& world) { test::check_collectives(world, 5003); }, c.copies, c.ranks_per_node);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    all.push_back({ranks, true, 0});
    for (const int width : {0, 1, 2, 3, 4})
      if (width < ranks) all.push_back({ranks, false, width});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Worlds, Local, testing::ValuesIn(cases()), [](const auto& test) {
  return strfmt("%dranks_%s_%dpernode", test.param.ranks, test.param.copies ? "copies" : "shared",
                test.param.ranks_per_node);
});

TEST(LocalWorld, SmallCollectives) {
  for (const int ranks : {1, 2, 5}) run_local(ranks, [](World& world) { test::check_world(world); });
}

TEST(LocalWorld, SlicesLargerThanStagingAndScratch) {
  // 1.5 M floats a chunk: beyond the 8 MiB of staging, and many rounds of scratch on two levels.
  const auto large = [](World& world) {
    const Mesh mesh(1, world.size());
    auto comm = world.communicator(mesh, Axis::shard);
    const std::size_t chunk = 1'500'001, count = chunk * static_cast<std::size_t>(world.size());
    std::vector<std::byte> staging(staging_bytes(world.topology(), mesh, Axis::shard, world.rank(), count * 4));
    comm->set_staging(staging);
    std::vector<float> full(count), mine(chunk);
    for (std::size_t k = 0; k < count; ++k)
      full[k] = static_cast<float>(k % 1000 + static_cast<std::size_t>(world.rank()));
    comm->reduce_scatter({"reduce", "large", 0}, full.data(), mine.data(), chunk);
    const auto n = static_cast<std::size_t>(world.size());
    for (std::size_t k = 0; k < chunk; ++k) {
      const std::size_t at = static_cast<std::size_t>(world.rank()) * chunk + k;
      ASSERT_EQ(mine[k], static_cast<float>(n * (at % 1000) + n * (n - 1) / 2)) << k;
    }
    comm->all_gather({"gather", "large", 0}, reinterpret_cast<std::byte*>(mine.data()),
                     reinterpret_cast<std::byte*>(full.data()), chunk * 4);
    for (std::size_t k = 0; k < count; ++k)
      ASSERT_EQ(full[k], static_cast<float>(n * (k % 1000) + n * (n - 1) / 2)) << k;
  };
  run_local(3, large, true);
  run_local(3, large, false, 2);
  run_local(2, large);
}

TEST(LocalWorld, AShortLastSliceLeavesThePreviousOneAlone) {
  // Two slices of a two-level reduce, the second shorter: a fast rank writes it to the scratch while a slow one adds
  // the first.
  const auto rounds = [](World& world) {
    const Mesh mesh(1, world.size());
    auto comm = world.communicator(mesh, Axis::shard);
    const std::size_t slice = comm::reduce_slice({{0, 2}, {2, 1}}) / sizeof(float), chunk = slice + slice * 5 / 8;
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<float> full(chunk * n), mine(chunk);
    for (std::size_t k = 0; k < full.size(); ++k) full[k] = static_cast<float>(k % 1000);
    for (int round = 0; round < 150; ++round) {
      comm->reduce_scatter({"reduce", "short", round}, full.data(), mine.data(), chunk);
      for (std::size_t k = 0; k < chunk; ++k)
        if (mine[k] != static_cast<float>(n * ((static_cast<std::size_t>(world.rank()) * chunk + k) % 1000)))
          throw std::runtime_error(
              strfmt("round %d, rank %d, element %zu: %g", round, world.rank(), k, static_cast<double>(mine[k])));
    }
  };
  EXPECT_NO_THROW(run_local(3, rounds, false, 2));
}

TEST(LocalWorld, HundredAndTwentyEightThreads) {
  const auto small = [](World& world) {
    const Mesh mesh(4, 32);
    for (const Axis axis : {Axis::replicate, Axis::shard}) {
      auto comm = world.communicator(mesh, axis);
      std::vector<std::byte> staging(staging_bytes(world.topology(), mesh, axis, world.rank(), 4 * 33 * 32));
      comm->set_staging(staging);
      const auto n = static_cast<std::size_t>(comm->size());
      std::vector<float> data(n * 33, static_cast<float>(comm->rank()));
      comm->all_reduce({"reduce", "u", 0}, data.data(), data.size());
      for (const float x : data) ASSERT_EQ(x, static_cast<float>(n * (n - 1) / 2));
    }
  };
  run_local(128, small);
  run_local(128, small, true);
  run_local(128, small, false, 16);
}

TEST(LocalFailure, AThrowingRankEndsItsPeers) {
  for (const bool copies : {false, true}) {
    std::atomic<int> stopped{0};
    try {
      run_local(
          4,
          [&](World& world) {
            auto comm = world.communicator(Mesh(1, 4), Axis::shard);
            comm->barrier({"barrier", "", -1});
            if (world.rank() == 2) throw Error(ExitCode::data, "rank 2 cannot read");
            try {
              comm->barrier({"barrier", "", -1});
            } catch (const Error& error) {
              EXPECT_EQ(error.code(), ExitCode::communication);
              EXPECT_NE(error.line().find("stopped by rank 2"), std::string::npos) << error.line();
              ++stopped;
              throw;
            }
          },
          copies);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.line(), "rank 2 cannot read");
      EXPECT_EQ(error.code(), ExitCode::data);
    }
    EXPECT_EQ(stopped, 3);
  }
}

/// Rank 2 of 4 skips `reduce h.1` of step 7 and continues, or does nothing more.
std::string skipped(bool copies, int ranks_per_node, bool idle) {
  try {
    run_local(
        4,
        [&](World& world) {
          auto comm = world.communicator(Mesh(1, 4), Axis::shard);
          std::vector<std::byte> staging(staging_bytes(world.topology(), Mesh(1, 4), Axis::shard, world.rank(), 64));
          comm->set_staging(staging);
          world.set_step(7);
          std::vector<float> full(16, 1.0F);
          comm->reduce_scatter({"reduce", "h.2", 0}, full.data(), full.data(), 4);
          if (world.rank() != 2) comm->reduce_scatter({"reduce", "h.1", 0}, full.data(), full.data(), 4);
          else if (idle) std::this_thread::sleep_for(std::chrono::milliseconds(900));
          comm->reduce_scatter({"reduce", "h.0", 0}, full.data(), full.data(), 4);
        },
        copies, ranks_per_node, 0.3);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::communication);
    return error.line();
  }
  return "nothing was thrown";
}

TEST(LocalFailure, ASkippedCollectiveIsNamed) {
  for (const auto& [copies, width] : {std::pair{true, 0}, std::pair{false, 0}, std::pair{false, 3}}) {
    const auto went_on = skipped(copies, width, false), stayed = skipped(copies, width, true);
    EXPECT_NE(went_on.find("rank 2 "), std::string::npos) << went_on;
    EXPECT_NE(went_on.find("step 7, reduce h.1 m0"), std::string::npos) << went_on;
    EXPECT_NE(stayed.find("rank 2 is late: step 7, reduce h.1 m0; it was last seen at reduce h.2 m0 (sequence 1)"),
              std::string::npos)
        << stayed;
  }
}

TEST(Delayed, SleepsAndDoesTheSame) {
  run_local(2, [](World& world) {
    auto comm = test::delayed(world.communicator(Mesh(1, 2), Axis::shard), {.gather_s = 0.05});
    float full[2] = {static_cast<float>(world.rank()), static_cast<float>(world.rank())};
    const auto begin = std::chrono::steady_clock::now();
    comm->all_gather({"gather", "u", -1}, reinterpret_cast<std::byte*>(&full[world.rank()]),
                     reinterpret_cast<std::byte*>(full), 4);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
    EXPECT_EQ(full[0], 0.0F);
    EXPECT_EQ(full[1], 1.0F);
    EXPECT_EQ(comm->traffic().collectives, 1U);
  });
}

}  // namespace
