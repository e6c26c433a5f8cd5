// SPDX-License-Identifier: Apache-2.0
// Staged collectives with the host as the device: bitwise equal to the inner communicator, for all slices, turns and
// pitches.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "runtime/base/rng.hpp"
#include "runtime/comm/device/staged.hpp"
#include "runtime/comm/world.hpp"
#include "tests/comm/costs.hpp"

using namespace tessera;
using test::counters_traffic, test::traffic;

namespace {

using Floats = std::vector<float>;
using Gather = StagedOptions::Gather;

/// Magnitudes differ by 2^20, so that another order of summation gives other bits.
Floats values(int rank, std::size_t count) {
  Floats all(count);
  for (std::size_t k = 0; k < count; ++k) {
    const auto bits = philox(7, k, static_cast<std::uint64_t>(rank));
    all[k] =
        static_cast<float>(static_cast<std::int32_t>(bits[0])) * 0x1p-31F * static_cast<float>(1 << (bits[1] % 21));
  }
  return all;
}

/// Two communicators of one group, plain and staged, and the same calls on both.
class Pair {
 public:
  Pair(World& world, std::size_t slice, Gather gather, std::size_t largest)
      : world_(world),
        mesh_(1, world.size()),
        plain_(world.communicator(mesh_, Axis::shard)),
        staged_(staged(world.communicator(mesh_, Axis::shard),
                       {.device = host_device, .slice_bytes = slice, .gather = gather})),
        n_(static_cast<std::size_t>(world.size())),
        me_(static_cast<std::size_t>(world.rank())) {
    const std::size_t inner = staging_bytes(world.topology(), mesh_, Axis::shard, world.rank(), largest * n_ * 4);
    plain_staging_.resize(inner);
    staged_staging_.resize(staged_bytes(world.size(), slice) + inner);
    plain_->set_staging(plain_staging_);
    staged_->set_staging(staged_staging_);
  }

  void run(std::size_t chunk) {
    const Floats input = values(world_.rank(), chunk * n_);
    Floats wanted = input, got = input;
    plain_->reduce_scatter({"reduce", "u", 0}, wanted.data(), wanted.data() + me_ * chunk, chunk);
    staged_->reduce_scatter({"reduce", "u", 0}, got.data(), got.data() + me_ * chunk, chunk);
    same(wanted, got, "reduce in place", chunk);

    Floats separate(chunk, -1);
    staged_->reduce_scatter({"reduce", "v", 0}, input.data(), separate.data(), chunk);
    same(Floats(wanted.begin() + static_cast<std::ptrdiff_t>(me_ * chunk),
                wanted.begin() + static_cast<std::ptrdiff_t>((me_ + 1) * chunk)),
         separate, "reduce apart", chunk);

    std::vector<std::uint16_t> input_16bit(chunk * n_);
    for (std::size_t k = 0; k < input_16bit.size(); ++k)
      input_16bit[k] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(input[k]) >> 16);
    Floats half_wanted(chunk), half_got(chunk);
    plain_->reduce_scatter({"reduce", "h", 0}, SourceBuffer(input_16bit.data(), DType::bf16), half_wanted.data(),
                           chunk);
    staged_->reduce_scatter({"reduce", "h", 0}, SourceBuffer(input_16bit.data(), DType::bf16), half_got.data(), chunk);
    same(half_wanted, half_got, "reduce of bf16", chunk);

    Floats gathered(chunk * n_, -1), mine(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(chunk));
    staged_->all_gather({"gather", "u", -1}, reinterpret_cast<const std::byte*>(mine.data()),
                        reinterpret_cast<std::byte*>(gathered.data()), chunk * 4);
    for (std::size_t r = 0; r < n_; ++r) {
      const Floats theirs = values(static_cast<int>(r), chunk * n_);
      if (chunk > 0 && std::memcmp(gathered.data() + r * chunk, theirs.data(), chunk * 4) != 0)
        throw std::runtime_error(strfmt("gather of %zu: part %zu differs on rank %d", chunk, r, world_.rank()));
    }

    Floats exchanged(chunk * n_, -1), wanted_exchange(chunk * n_, -2);
    const auto* const parts = reinterpret_cast<const std::byte*>(input.data());
    plain_->all_to_all({"exchange", "u", -1}, parts, reinterpret_cast<std::byte*>(wanted_exchange.data()), chunk * 4);
    staged_->all_to_all({"exchange", "u", -1}, parts, reinterpret_cast<std::byte*>(exchanged.data()), chunk * 4);
    same(wanted_exchange, exchanged, "all_to_all", chunk);

    Floats a = input, b = input;
    plain_->all_reduce({"reduce", "w", -1}, a.data(), a.size());
    staged_->all_reduce({"reduce", "w", -1}, b.data(), b.size());
    same(a, b, "all_reduce", chunk);
    small(chunk);
  }

 private:
  void same(const Floats& wanted, const Floats& got, const char* what, std::size_t chunk) const {
    if (wanted.size() != got.size() ||
        (!wanted.empty() && std::memcmp(wanted.data(), got.data(), wanted.size() * 4) != 0))
      throw std::runtime_error(strfmt("%s of %zu differs on rank %d", what, chunk, world_.rank()));
  }
  void small(std::size_t count) {
    std::vector<std::int64_t> counters(count);
    for (std::size_t k = 0; k < count; ++k) counters[k] = static_cast<std::int64_t>(k * 3 + me_);
    staged_->all_reduce({"norm", "counters", -1}, counters);
    for (std::size_t k = 0; k < count; ++k)
      if (counters[k] != static_cast<std::int64_t>(k * 3 * n_ + n_ * (n_ - 1) / 2))
        throw std::runtime_error(strfmt("word %zu of %zu", k, count));
    const int root = world_.size() - 1;
    std::vector<std::byte> bytes(count * 3, world_.rank() == root ? std::byte{9} : std::byte{1});
    staged_->broadcast({"broadcast", "test", -1}, bytes, root);
    for (const std::byte b : bytes)
      if (b != std::byte{9}) throw std::runtime_error("broadcast");
    staged_->barrier({"barrier", "test", -1});
  }

  World& world_;
  Mesh mesh_;
  std::unique_ptr<Communicator> plain_, staged_;
  std::size_t n_, me_;
  std::vector<std::byte> plain_staging_, staged_staging_;
};

struct StagedWorld {
  int ranks;
  bool copies;
  Gather gather;
};
class Staged : public testing::TestWithParam<StagedWorld> {};

TEST_P(Staged, gives_the_bits_of_the_inner_communicator) {
  const StagedWorld c = GetParam();
  run_local(
      c.ranks,
      [&](World& world) {
        constexpr std::size_t slice = 512, floats = slice / 4;  // small slices: many turns, a short last one
        Pair pair(world, slice, c.gather, 10 * floats);
        for (const std::size_t chunk :
             {std::size_t{0}, std::size_t{1}, floats - 1, floats, floats + 1, 2 * floats, 9 * floats + 77})
          pair.run(chunk);
      },
      c.copies);
}
INSTANTIATE_TEST_SUITE_P(Worlds, Staged,
                         testing::Values(StagedWorld{1, true, Gather::staged}, StagedWorld{2, true, Gather::staged},
                                         StagedWorld{3, true, Gather::staged}, StagedWorld{5, false, Gather::staged},
                                         StagedWorld{3, true, Gather::direct}, StagedWorld{4, false, Gather::direct}),
                         [](const auto& test) {
                           return strfmt("%dranks_%s_%s", test.param.ranks, test.param.copies ? "copies" : "shared",
                                         test.param.gather == Gather::direct ? "direct" : "staged");
                         });

TEST(StagingBytes, grow_with_the_members_and_suffice) {
  for (const int size : {1, 2, 3, 128, 5000}) {
    EXPECT_EQ(staged_slice(size) % 512, 0u);
    EXPECT_GE(staged_slice(size), 4096u);
    EXPECT_LE(static_cast<std::size_t>(size) * staged_slice(size),
              std::max(std::size_t{8} << 20, static_cast<std::size_t>(size) * 4096));
    EXPECT_EQ(staged_bytes(size, 4096), 2u * (static_cast<std::size_t>(size) + 1) * 4096);
  }
}

TEST(StagingBytes, are_part_of_the_plan) {
  const Topology plain{Transport::mpi, 4}, device{Transport::mpi, 4, false, true}, ring{Transport::nccl, 4};
  const Mesh mesh(1, 4);
  EXPECT_EQ(staging_bytes(device, mesh, Axis::shard, 0, 1 << 20),
            staged_bytes(4, staged_slice(4)) + staging_bytes(plain, mesh, Axis::shard, 0, 4 * staged_slice(4)));
  EXPECT_EQ(staging_bytes(device, Mesh(4, 1), Axis::shard, 0, 1 << 20), 0u);
  EXPECT_EQ(staging_bytes(ring, mesh, Axis::shard, 0, 1 << 20), 0u);
  EXPECT_FALSE((Topology{Transport::node, 4, false, true}).in_place(mesh, Axis::shard));
}

TEST(NcclTraffic, is_a_ring) {
  const Topology ring{Transport::nccl, 2};
  const Mesh mesh(1, 4);
  using Kind = CollectiveKind;
  EXPECT_EQ(traffic(ring, mesh, Axis::shard, 0, Kind::all_gather, 4000), (TrafficCount{3000, 0, 1}));
  EXPECT_EQ(traffic(ring, mesh, Axis::shard, 1, Kind::reduce_scatter, 4000), (TrafficCount{0, 3000, 1}));
  EXPECT_EQ(traffic(ring, mesh, Axis::shard, 3, Kind::all_reduce, 4000), (TrafficCount{0, 6000, 1}));
  EXPECT_EQ(traffic(ring, Mesh(4, 1), Axis::shard, 3, Kind::all_gather, 4000), (TrafficCount{0, 0, 1}));
  EXPECT_EQ(counters_traffic(ring, mesh, Axis::shard, 2, 10), (TrafficCount{80, 0, 1}));
}

}  // namespace
