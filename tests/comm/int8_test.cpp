// SPDX-License-Identifier: Apache-2.0
// Collectives of block-wise int8 against a reference of one thread, to the bit, in every kind of world; error feedback
// loses nothing; a number that is not finite reaches every member.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/int8_blocks.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/comm/int8_collectives.hpp"
#include "runtime/comm/world.hpp"

using namespace tessera;

namespace {

using Floats = std::vector<float>;

Floats input(int member, int step, std::size_t count) {
  Floats x(count);
  for (std::size_t k = 0; k < count; ++k) {
    const auto bits = philox(static_cast<std::uint64_t>(step), k, static_cast<std::uint64_t>(member));
    x[k] = static_cast<float>(static_cast<std::int32_t>(bits[0])) * 0x1p-31F * static_cast<float>(1 << (k / 300 % 5));
  }
  return x;
}

/// What a member reads of `count` numbers from x on, which are encoded with the residual from r on.
Floats coded(const float* x, float* r, std::size_t count) {
  std::vector<std::byte> bytes(kernels::int8_bytes(count));
  kernels::encode_int8({.x = x, .to = bytes.data(), .count = count, .residual = r}, host_stream);
  Floats read(count);
  kernels::decode_int8({.from = bytes.data(), .to = read.data(), .count = count}, host_stream);
  return read;
}

/// The members of a group, computed by one thread.
struct Reference {
  std::size_t members, chunk;
  bool feedback;
  std::vector<Floats> residuals;  // by member
  Reference(std::size_t members_, std::size_t chunk_, bool feedback_)
      : members(members_), chunk(chunk_), feedback(feedback_), residuals(members_, Floats(members_ * chunk_)) {}

  float* residual(std::size_t member, std::size_t first) {
    return feedback ? residuals[member].data() + first : nullptr;
  }
  /// Chunk `owner` of the sum of the inputs of `step`.
  Floats scattered(std::size_t owner, int step) {
    std::vector<Floats> parts;
    std::vector<const float*> pointers;
    for (std::size_t i = 0; i < members; ++i)
      parts.push_back(coded(input(static_cast<int>(i), step, members * chunk).data() + owner * chunk,
                            residual(i, owner * chunk), chunk));
    for (const Floats& part : parts) pointers.push_back(part.data());
    Floats sum(chunk);
    kernels::sum_tree({.parts = pointers, .out = sum.data(), .count = chunk}, host_stream);
    return sum;
  }
  Floats reduced(int step) {
    Floats all;
    for (std::size_t owner = 0; owner < members; ++owner) {
      const Floats sum = scattered(owner, step), read = coded(sum.data(), residual(owner, owner * chunk), chunk);
      all.insert(all.end(), read.begin(), read.end());
    }
    return all;
  }
};

void same(const Floats& got, const Floats& wanted, const char* what) {
  if (got.size() != wanted.size() || std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) != 0)
    throw std::runtime_error(strfmt("%s differs", what));
}

void check_group(World& world, const Mesh& mesh, Axis axis, std::size_t chunk, bool feedback) {
  const auto comm = world.communicator(mesh, axis);
  const auto members = static_cast<std::size_t>(comm->size()), me = static_cast<std::size_t>(comm->rank());
  const std::size_t count = members * chunk;
  std::vector<std::byte> staging(comm::int8_sum_staging(members, chunk));
  Floats residual(count), scatter_residual(count), sums(count), mine(chunk);
  Reference all(members, chunk, feedback), scatter(members, chunk, feedback);
  for (int step = 0; step < 3; ++step) {
    const Floats x = input(static_cast<int>(me), step, count);
    const auto before = comm->traffic();
    comm::int8_all_reduce(*comm, {"all_reduce", "u", step}, x.data(), sums.data(), count,
                          feedback ? residual.data() : nullptr, staging, host_stream);
    same(sums, all.reduced(step), "all_reduce");
    same(residual, all.residuals[me], "residual of all_reduce");
    const TrafficCount after = comm->traffic(),
                       sent{after.within_node - before.within_node, after.across_nodes - before.across_nodes,
                            after.collectives - before.collectives};
    EXPECT_EQ(sent, AxisCosts(world.topology(), mesh, axis)
                        .group(world.rank())
                        .int8_traffic(comm->rank(), CollectiveKind::all_reduce, members * kernels::int8_bytes(chunk)));
    comm::int8_reduce_scatter(*comm, {"reduce_scatter", "u", step}, x.data(), mine.data(), chunk,
                              feedback ? scatter_residual.data() : nullptr, staging, host_stream);
    Floats own;
    for (std::size_t owner = 0; owner < members; ++owner) {
      const Floats sum = scatter.scattered(owner, step);
      if (owner == me) own = sum;
    }
    same(mine, own, "reduce_scatter");
    same(scatter_residual, scatter.residuals[me], "residual of reduce_scatter");
  }
}

struct TestWorld {
  int ranks;
  bool copies;
  int ranks_per_node;
};
const TestWorld worlds[] = {{1, true, 0},  {2, true, 0},  {3, true, 0}, {2, false, 0},
                            {4, false, 0}, {4, false, 2}, {5, false, 3}};

TEST(Int8Collectives, SumsAreTheReferencesInEveryWorld) {
  for (const TestWorld& c : worlds)
    run_local(
        c.ranks,
        [](World& world) {
          for (const std::size_t chunk : {std::size_t{128}, std::size_t{1001}})
            for (const bool feedback : {false, true}) {
              check_group(world, Mesh(1, world.size()), Axis::shard, chunk, feedback);
              if (world.size() == 4) check_group(world, Mesh(2, 2), Axis::replicate, chunk, feedback);
            }
        },
        c.copies, c.ranks_per_node);
}

TEST(Int8Collectives, ResultAndResidualsKeepTheSum) {
  run_local(4, [](World& world) {
    const auto comm = world.communicator(Mesh(1, 4), Axis::shard);
    const std::size_t chunk = 300, count = 4 * chunk;
    std::vector<std::byte> staging(comm::int8_sum_staging(4, chunk));
    Floats residual(count), sums(count), total(count), given(count);
    for (int step = 0; step < 10; ++step) {
      const Floats x = input(comm->rank(), step, count);
      comm::int8_all_reduce(*comm, {"all_reduce", "u", step}, x.data(), sums.data(), count, residual.data(), staging,
                            host_stream);
      for (std::size_t k = 0; k < count; ++k) total[k] += sums[k];
      for (std::size_t k = 0; k < count; ++k) given[k] += x[k];
    }
    std::vector<std::byte> plain(staging_bytes(world.topology(), Mesh(1, 4), Axis::shard, world.rank(), count * 4));
    comm->set_staging(plain);
    comm->all_reduce({"all_reduce", "residual", 0}, residual.data(), count);
    comm->all_reduce({"all_reduce", "given", 0}, given.data(), count);
    for (std::size_t k = 0; k < count; ++k) ASSERT_NEAR(total[k] + residual[k], given[k], 1e-3F) << k;
  });
}

TEST(Int8Collectives, GathersRoundTheOwnersNumbersToo) {
  for (const TestWorld& c : worlds)
    run_local(
        c.ranks,
        [](World& world) {
          const auto comm = world.communicator(Mesh(1, world.size()), Axis::shard);
          const auto members = static_cast<std::size_t>(comm->size());
          const std::size_t chunk = 9001;  // more than the numbers that are cast at a time
          std::vector<std::byte> staging(comm::int8_gather_staging(members, chunk));
          const Floats x = input(comm->rank(), 0, chunk);
          Floats full(members * chunk), wanted;
          std::vector<bf16> narrow(members * chunk);
          comm::int8_all_gather(*comm, {"gather", "u", 0}, x.data(), reinterpret_cast<std::byte*>(full.data()),
                                DType::f32, chunk, staging, host_stream);
          comm::int8_all_gather(*comm, {"gather", "u", 1}, x.data(), reinterpret_cast<std::byte*>(narrow.data()),
                                DType::bf16, chunk, staging, host_stream);
          for (std::size_t i = 0; i < members; ++i) {
            const Floats read = coded(input(static_cast<int>(i), 0, chunk).data(), nullptr, chunk);
            wanted.insert(wanted.end(), read.begin(), read.end());
          }
          same(full, wanted, "gather");
          for (std::size_t k = 0; k < narrow.size(); ++k) ASSERT_EQ(narrow[k].bits, bf16(wanted[k]).bits) << k;
        },
        c.copies, c.ranks_per_node);
}

TEST(Int8Collectives, InfinityReachesEveryMember) {
  run_local(3, [](World& world) {
    const auto comm = world.communicator(Mesh(1, 3), Axis::shard);
    const std::size_t chunk = 512, count = 3 * chunk;
    std::vector<std::byte> staging(comm::int8_sum_staging(3, chunk));
    Floats x(count, 1.0F), residual(count), sums(count);
    if (comm->rank() == 1) x[700] = std::numeric_limits<float>::infinity();
    comm::int8_all_reduce(*comm, {"all_reduce", "u", 0}, x.data(), sums.data(), count, residual.data(), staging,
                          host_stream);
    for (std::size_t k = 0; k < count; ++k) ASSERT_EQ(std::isnan(sums[k]), k >= 512 && k < 768) << k;
  });
}

}  // namespace
