// SPDX-License-Identifier: Apache-2.0
// What transport mpi sends: sums, messages, bytes and rounds of the same code between threads, up to 1,024.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "checks.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/reduction_tree.hpp"

using namespace tessera;

namespace {

int ceil_log(int base, int size) {
  int levels = 0;
  for (int reach = 1; reach < size; reach *= base) ++levels;
  return levels;
}

std::vector<int> expanded(const std::vector<comm::ChunkSet>& sets, int size) {
  std::vector<int> chunks;
  for (const auto& set : sets)
    for (int chunk = set.first; chunk < size; chunk += set.step) chunks.push_back(chunk);
  return chunks;
}

// Each message that a member waits for is sent, with the same chunks in the same order; a member sends each chunk but
// its own once; up to 7 messages a level go to members of full blocks.
TEST(ReductionTree, SendsAreReceivesAndEveryChunkLeavesOnce) {
  std::vector<int> sizes{127, 129, 511, 513, 520, 1023, 1024};
  for (int size = 2; size <= 74; ++size) sizes.push_back(size);
  for (const int size : sizes) {
    std::map<std::pair<int, int>, std::vector<int>> sent;
    std::size_t expected = 0;
    std::vector<std::vector<comm::TreeLevel>> all;
    const std::size_t slots = comm::tree_slots(size);
    for (int rank = 0; rank < size; ++rank) all.push_back(comm::reduction_tree(size, rank));
    for (int rank = 0; rank < size; ++rank) {
      const auto& levels = all[static_cast<std::size_t>(rank)];
      EXPECT_LE(static_cast<int>(levels.size()), ceil_log(8, size));
      EXPECT_LE(comm::tree_slots(levels, size), slots);
      EXPECT_EQ(expanded(levels.back().held, size), std::vector<int>{rank}) << size;
      int chunks = 0;
      for (const auto& level : levels) {
        expected += level.receives.size();
        EXPECT_LE(level.receives.size(), 7U);
        for (const auto& message : level.sends) {
          const auto [at, fresh] = sent.insert({{rank, message.peer}, expanded(message.chunks, size)});
          EXPECT_TRUE(fresh) << "two messages from " << rank << " to " << message.peer << " of " << size;
          chunks += static_cast<int>(at->second.size());
          EXPECT_EQ(message.count(size), static_cast<int>(at->second.size()));
        }
      }
      EXPECT_EQ(chunks, size - 1) << rank << " of " << size;
    }
    EXPECT_EQ(sent.size(), expected) << size;
    for (int rank = 0; rank < size; ++rank)
      for (const auto& level : all[static_cast<std::size_t>(rank)])
        for (const auto& message : level.receives)
          EXPECT_EQ((sent[{message.peer, rank}]), expanded(message.chunks, size)) << rank << " of " << size;
  }
}

// The figures of decision 0044.
TEST(ReductionTree, MostMessagesOfARank) {
  const auto most = [](int size) {
    std::size_t messages = 0;
    for (int rank = 0; rank < size; ++rank) {
      std::size_t sent = 0;
      for (const auto& level : comm::reduction_tree(size, rank)) sent += level.sends.size();
      messages = std::max(messages, sent);
    }
    return messages;
  };
  const std::map<int, std::size_t> expected{{64, 14},   {65, 64},  {72, 15},  {100, 15}, {512, 21},  {513, 512},
                                            {516, 131}, {520, 71}, {528, 40}, {576, 22}, {1000, 26}, {1024, 22}};
  for (const auto& [size, messages] : expected) EXPECT_EQ(most(size), messages) << size;
  int few = 0;
  for (int size = 16; size <= 1024; size += 8) {
    EXPECT_LE(most(size), 71U) << size;
    few += most(size) <= 28 ? 1 : 0;
  }
  EXPECT_EQ(few, 106);
}

// Groups of more than 8 members, complete blocks and not, one to three levels; 3 ranks on a node for the byte counts.
TEST(Messages, EveryCollectiveBitForBit) {
  for (const int ranks : {9, 13, 16, 17, 24}) {
    run_local(
        ranks,
        [&](World& world) {
          test::check_collective(world, Mesh(1, ranks), Axis::shard, {1, 37, 300});
          test::check_world(world);
        },
        true, 3);
  }
  run_local(
      72,
      [](World& world) {
        test::check_collective(world, Mesh(1, 72), Axis::shard, {1, 17});
      },
      true, 8);
}

struct Sent {
  comm::MessageCount gather, reduce, counters, barrier, broadcast;
};

/// What each rank of `ranks` sends for one of each collective, with chunks of `chunk` floats. Checks the sums.
std::vector<Sent> sent_by(int ranks, std::size_t chunk) {
  std::vector<Sent> all(static_cast<std::size_t>(ranks));
  run_local(
      ranks,
      [&](World& world) {
        auto comm = world.communicator(Mesh(1, ranks), Axis::shard);
        const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(world.rank());
        std::vector<std::byte> staging(
            staging_bytes(world.topology(), Mesh(1, ranks), Axis::shard, world.rank(), n * chunk * 4));
        comm->set_staging(staging);
        Sent& sent = all[me];
        const auto counted = [&](const auto& collective) {
          const auto before = comm::message_count(*comm);
          collective();
          return comm::message_count(*comm) - before;
        };
        std::vector<float> full(n * chunk), mine(chunk);
        for (std::size_t k = 0; k < full.size(); ++k) full[k] = static_cast<float>(k % 1000 + me);
        sent.reduce = counted([&] { comm->reduce_scatter({"reduce", "u", 0}, full.data(), mine.data(), chunk); });
        for (std::size_t k = 0; k < chunk; ++k)
          if (mine[k] != static_cast<float>(n * ((me * chunk + k) % 1000) + n * (n - 1) / 2))
            throw std::runtime_error(strfmt("sum %zu of rank %zu of %d", k, me, ranks));
        sent.gather = counted([&] {
          comm->all_gather({"gather", "u", 0}, reinterpret_cast<std::byte*>(mine.data()),
                           reinterpret_cast<std::byte*>(full.data()), chunk * 4);
        });
        for (std::size_t k = 0; k < full.size(); ++k)
          if (full[k] != static_cast<float>(n * (k % 1000) + n * (n - 1) / 2))
            throw std::runtime_error(strfmt("gathered %zu of rank %zu of %d", k, me, ranks));
        std::vector<std::int64_t> counters(50, static_cast<std::int64_t>(me));
        sent.counters = counted([&] { comm->all_reduce({"norm", "", -1}, counters); });
        for (const auto sum : counters)
          if (sum != static_cast<std::int64_t>(n * (n - 1) / 2)) throw std::runtime_error("sum of counters");
        sent.barrier = counted([&] { comm->barrier({"barrier", "", -1}); });
        std::byte word[100] = {};
        sent.broadcast = counted([&] { comm->broadcast({"broadcast", "", -1}, word, 0); });
      },
      true, 8, /*comm_timeout_s=*/900);  // 1,024 threads on a few busy cores, under a sanitizer
  return all;
}

// The closed forms are written out here, not taken from topology.hpp.
TEST(Messages, CountsAreClosedForms) {
  constexpr std::size_t chunk = 16;
  for (const int ranks : {3, 8, 9, 64, 100, 512, 1000, 1024}) {
    const auto n = static_cast<std::uint64_t>(ranks);
    const auto log2 = static_cast<std::uint64_t>(ceil_log(2, ranks)),
               log8 = static_cast<std::uint64_t>(ceil_log(8, ranks));
    std::uint64_t broadcasts = 0, reduces = 0;
    for (const Sent& sent : sent_by(ranks, chunk)) {
      EXPECT_EQ(sent.reduce.bytes, (n - 1) * chunk * 4) << ranks;
      EXPECT_LE(sent.reduce.rounds, log8) << ranks;
      EXPECT_EQ(sent.gather.bytes, (n - 1) * chunk * 4) << ranks;
      EXPECT_EQ(sent.gather.rounds, ranks <= 8 ? 1 : log2) << ranks;
      EXPECT_LE(sent.gather.messages, ranks <= 8 ? n - 1 : 2 * log2) << ranks;
      EXPECT_EQ(sent.barrier, (comm::MessageCount{log2, 0, log2})) << ranks;
      EXPECT_LE(sent.counters.messages, ranks <= 8 ? n - 1 : log2 + 1) << ranks;
      EXPECT_LE(sent.counters.rounds, log2 + 1) << ranks;
      broadcasts += sent.broadcast.messages;
      reduces += sent.reduce.messages;
      if (std::has_single_bit(n)) {
        // Level k has 8 blocks, the last level 2, 4 or 8.
        std::uint64_t messages = 0;
        for (std::uint64_t rest = n; rest > 1; rest = (rest + 7) / 8) messages += std::min<std::uint64_t>(rest, 8) - 1;
        EXPECT_EQ(sent.reduce, (comm::MessageCount{messages, (n - 1) * chunk * 4, log8})) << ranks;
        EXPECT_EQ(sent.counters.messages, ranks <= 8 ? n - 1 : log2) << ranks;
      }
    }
    EXPECT_EQ(broadcasts, n - 1);
    EXPECT_LE(reduces, n * 7 * log8) << ranks;
  }
}

}  // namespace
