// SPDX-License-Identifier: Apache-2.0
// The start of 1,024 ranks: what they agree on costs each a few messages per doubling of the ranks, and little CPU.
// tests/plan/network_test.cpp has the plan, tests/io/checkpoint_test.cpp the layout of a checkpoint.
#include "start_cost.hpp"

namespace tessera::test {
namespace {

constexpr int ranks = 1024, width = 8;

TEST(Start, AThousandRanksAgree) {
  StartCost options, ids, phase, text, device, hosts, communicators;
  const std::string all_options(20000, 'o');
  run_local(
      ranks,
      [&](World& world) {
        // broadcast of a length and of a text, then an all-gather of one number
        options.measure(world, [&] { world.require_equal("options", all_options); });
        ids.measure(world, [&] { world.require_equal("the packed samples", "0123456789abcdef"); });
        phase.measure(world, [&] { world.run_and_agree([] {}); });
        text.measure(world, [&] {
          const std::string config = world.text_of_rank_0([&] { return std::string(4000, 'c'); });
          if (config.size() != 4000) throw std::runtime_error("another text");
        });
        device.measure(world, [&] {
          if (world.max(world.rank() % 7) != 6) throw std::runtime_error("another maximum");
        });
        hosts.measure(world, [&] {
          const auto all = world.gather("host-" + std::to_string(world.rank() / width));
          if (world.rank() == 0 && all.back() != "host-127") throw std::runtime_error("another host");
        });
        communicators.measure(world, [&] {
          const Mesh mesh(ranks / width, width);
          for (const AxisSet axes : {Axis::shard, Axis::replicate}) (void)world.communicator(mesh, axes);
        });
      },
      /*copies=*/false, width);
  options.expect_small("options", ranks, 4);
  ids.expect_small("dataset ids", ranks, 4);
  phase.expect_small("a phase", ranks, 2);
  text.expect_small("a text of rank 0", ranks, 4);
  device.expect_small("device", ranks, 2);
  hosts.expect_small("hosts", ranks, 3);
  communicators.expect_small("communicators", ranks, 2);
}

}  // namespace
}  // namespace tessera::test
