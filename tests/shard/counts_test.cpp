// SPDX-License-Identifier: Apache-2.0
// Numbers of collectives and sizes of slots, against closed formulas.

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/shard/verify.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

struct Count {
  int gathers = 0, releases = 0, reduces = 0, norms = 0, updates = 0;
  friend bool operator==(const Count&, const Count&) = default;
};

Count count(const Schedule& s) {
  Count out;
  for (const Instruction& in : s.list) {
    out.gathers += in.op == Op::gather;
    out.releases += in.op == Op::release;
    out.reduces += (in.op == Op::reduce_scatter || in.op == Op::all_reduce) && in.stream == StreamId::reduce;
    out.norms += in.op == Op::norm;
    out.updates += in.op == Op::update;
  }
  return out;
}

/// All-reduces that follow a reduce-scatter.
int count_replicated(const Schedule& s) {
  return static_cast<int>(
      std::ranges::count_if(s.list, [](const Instruction& in) { return in.stream == StreamId::replicate; }));
}

constexpr int max_blocks = 7;

/// Calls `check` for models of 0 … 7 blocks, accumulation 1 … 5, prefetch 0 … 3.
template <class Check>
void sweep(const char* word, Check&& check) {
  for (int blocks = 0; blocks <= max_blocks; ++blocks) {
    for (int num_micro = 1; num_micro <= 5; ++num_micro) {
      for (int prefetch = 0; prefetch <= 3; ++prefetch) {
        ScheduleInput in = schedule_input({.num_blocks = blocks}, make_strategy(word, 4, 0, 2), num_micro);
        in.policy.forward_prefetch = in.policy.backward_prefetch = prefetch;
        SCOPED_TRACE(strfmt("%s, %d blocks, A %d, prefetch %d", word, blocks, num_micro, prefetch));
        check(in, blocks, num_micro, prefetch);
      }
    }
  }
}

TEST(Counts, UnshardedParametersAreGatheredOnceAStep) {
  for (const char* word : {"1", "2", "HYBRID_SHARD_ZERO2"}) {
    sweep(word, [](ScheduleInput& in, int blocks, int num_micro, int) {
      const int units = blocks + 2;
      EXPECT_EQ(count(build_train(in)), (Count{units, 0, units * num_micro, 1, units}));
      in.policy.reduce = Reduce::last;
      EXPECT_EQ(count(build_train(in)), (Count{units, 0, units, 1, units}));
    });
  }
}

TEST(Counts, NothingIsGatheredOnAShardAxisOfOne) {
  sweep("0", [](ScheduleInput& in, int blocks, int num_micro, int) {
    const int units = blocks + 2;
    EXPECT_EQ(count(build_train(in)), (Count{0, 0, units * num_micro, 1, units}));
    in.mesh = Mesh(1, 1);  // one rank
    in.policy.shard_params = in.policy.shard_grads = true;
    const Schedule s = build_train(in);
    EXPECT_EQ(count(s).gathers + count(s).releases, 0);
    for (const ScheduledUnit& unit : s.units) EXPECT_TRUE(unit.params_resident);
  });
}

// The blocks share K = min(L, 1 + prefetch) slots. The first forward gathers all L. At each of the 2A - 1 changes of
// direction (forward to backward, backward to the next forward) K of them are still gathered. Embedding and head have
// slots of their own: once per step.
TEST(Counts, ShardedParametersAreGatheredWhereTheyAreNotStillThere) {
  for (const char* word : {"3", "HYBRID_SHARD"}) {
    sweep(word, [](ScheduleInput& in, int blocks, int num_micro, int prefetch) {
      const int units = blocks + 2, slots = std::min(blocks, 1 + prefetch);
      const int gathers = 2 + blocks + (2 * num_micro - 1) * (blocks - slots);
      EXPECT_EQ(count(build_train(in)), (Count{gathers, gathers, units * num_micro, 1, units}));
      in.policy.recompute = Recompute::full;  // one gather serves recompute and backward
      EXPECT_EQ(count(build_train(in)), (Count{gathers, gathers, units * num_micro, 1, units}));
      in.policy.reshard_after_forward = false;
      EXPECT_EQ(count(build_train(in)), (Count{units, 0, units * num_micro, 1, units}));
      in.policy.reshard_after_forward = true;
      in.params_in_place = true;  // shared memory: parameters stay gathered
      EXPECT_EQ(count(build_train(in)), (Count{units, 0, units * num_micro, 1, units}));
    });
  }
}

// Three blocks a unit: G full units share K = min(G, 1 + prefetch) slots, as single blocks do. A remainder of two
// blocks is similar enough in size to be one of them; one of a single block has a slot of its own, as the embedding.
TEST(Counts, UnitsOfSeveralBlocksAreGatheredAndReducedOnce) {
  for (const char* word : {"0", "2", "3", "HYBRID_SHARD"})
    for (int blocks = 1; blocks <= 13; ++blocks)
      for (int num_micro = 1; num_micro <= 3; ++num_micro)
        for (int prefetch = 0; prefetch <= 3; ++prefetch) {
          SCOPED_TRACE(strfmt("%s, %d blocks, A %d, prefetch %d", word, blocks, num_micro, prefetch));
          ScheduleInput in = schedule_input({.num_blocks = blocks, .blocks_per_unit = 3, .embed = 50000},
                                            make_strategy(word, 4, 0, 2), num_micro);
          in.policy.forward_prefetch = in.policy.backward_prefetch = prefetch;
          const int units = (blocks + 2) / 3 + 2, alone = blocks % 3 == 1 ? 3 : 2, sharing = units - alone;
          const int slots = std::min(sharing, 1 + prefetch);
          const int sharded = alone + sharing + (2 * num_micro - 1) * (sharing - slots);
          const int gathers = word[0] == '0' ? 0 : word[0] == '2' ? units : sharded;
          for (const bool recompute : {false, true}) {
            in.policy.recompute = recompute ? Recompute::full : Recompute::none;
            const Schedule s = build_train(in);
            EXPECT_EQ(count(s),
                      (Count{gathers, word[0] == '0' || word[0] == '2' ? 0 : gathers, units * num_micro, 1, units}))
                << text(s);
            EXPECT_NO_THROW(require_safe(s, in.mesh));
          }
          in.policy.reduce = Reduce::last;
          EXPECT_EQ(count(build_train(in)).reduces, units);
        }
}

// A gather is issued when the unit before it is first read, not before its last block.
TEST(Counts, AUnitOfSeveralBlocksIsPrefetchedDuringAllOfTheOneBefore) {
  const ScheduleInput in = schedule_input({.num_blocks = 9, .blocks_per_unit = 3}, make_strategy("3", 4, 0, 2), 1);
  const Schedule s = build_train(in);
  const auto position = [&](Op op, const char* name) {
    return std::ranges::find_if(s.list,
                                [&](const Instruction& i) {
                                  return i.op == op && instruction_name(s, i).find(name) != std::string::npos;
                                }) -
           s.list.begin();
  };
  EXPECT_LT(position(Op::gather, "h.3-5"), position(Op::forward, "h.0 "));
  EXPECT_LT(position(Op::gather, "h.6-8"), position(Op::forward, "h.3 "));
  EXPECT_GT(position(Op::gather, "h.6-8"), position(Op::forward, "h.2 "));
  EXPECT_LT(position(Op::backward, "h.6 "), position(Op::reduce_scatter, "h.6-8"));
}

TEST(Counts, TheWholeModelInOneUnit) {
  for (const char* word : {"2", "3"})
    for (int num_micro = 1; num_micro <= 3; ++num_micro) {
      ScheduleInput in = schedule_input({.num_blocks = 4}, make_strategy(word, 4, 0, 2), num_micro);
      in.units = {{.name = "model", .numel = 9100}};
      for (ModuleUse& module : in.modules)
        for (auto* units : {&module.forward_units, &module.backward_units, &module.grad_units})
          if (!units->empty()) *units = {0};
      const Schedule s = build_train(in);
      EXPECT_EQ(count(s), (Count{1, word[0] == '3' ? 1 : 0, num_micro, 1, 1})) << text(s);
      EXPECT_NO_THROW(require_safe(s, in.mesh));
    }
}

/// Elements of all slots of a kind, in fp32.
std::int64_t total(const Schedule& s, Slot::Kind kind) {
  std::int64_t sum = 0;
  for (int k = 0; k < static_cast<int>(s.slots.size()); ++k)
    if (s.slots[static_cast<std::size_t>(k)].kind == kind) sum += s.slot_bytes(k) / 4;
  return sum;
}

// What the plan allocates: every slot, whether or not all are in use at one time.
TEST(Counts, SlotsByFormula) {
  const ModelShape shape;
  const auto numel_of = [&](int blocks) { return shape.embed + shape.head + blocks * shape.block; };
  const auto params = [](const ScheduleInput& in) { return total(build_train(in), Slot::Kind::param); };
  const auto grads = [](const ScheduleInput& in) { return total(build_train(in), Slot::Kind::grad); };
  sweep("3", [&](ScheduleInput& in, int blocks, int, int prefetch) {
    EXPECT_EQ(params(in), numel_of(std::min(blocks, 1 + prefetch)));
    EXPECT_EQ(grads(in), numel_of(std::min(blocks, 2)));  // one written, one reduced
  });
  sweep("2", [&](ScheduleInput& in, int blocks, int num_micro, int) {
    EXPECT_EQ(params(in), numel_of(blocks));
    EXPECT_EQ(grads(in), numel_of(std::min(blocks, 2)));
    in.policy.reduce = Reduce::last;  // gradients are summed unsharded until the last micro-batch
    EXPECT_EQ(grads(in), numel_of(num_micro > 1 ? blocks : std::min(blocks, 2)));
  });
  sweep("1", [&](ScheduleInput& in, int blocks, int, int) { EXPECT_EQ(grads(in), numel_of(blocks)); });
  sweep("0", [&](ScheduleInput& in, int blocks, int num_micro, int) {
    EXPECT_EQ(params(in), numel_of(blocks));
    EXPECT_EQ(grads(in), numel_of(num_micro > 1 ? std::min(blocks, 2) : blocks));
  });
}

// An untied head is nearly as large as the embedding, and used at other times: they share one slot, the blocks two.
TEST(Counts, UnitsOfLikeSizeShareSlots) {
  ScheduleInput in = schedule_input({.num_blocks = 6, .tied = false, .head = 4800}, make_strategy("3", 4, 0, 2), 2);
  for (const int prefetch : {0, 1, 2, 3}) {
    in.policy.forward_prefetch = in.policy.backward_prefetch = prefetch;
    const Schedule s = build_train(in);
    EXPECT_EQ(total(s, Slot::Kind::param), 5000 + (1 + prefetch) * 1000) << text(s);
    EXPECT_EQ(total(s, Slot::Kind::grad), 5000 + 2 * 1000);
    EXPECT_NO_THROW(require_safe(s, in.mesh));
  }
  in.policy.forward_prefetch = in.policy.backward_prefetch = 9;  // all units are gathered ahead: no slot is shared
  EXPECT_EQ(total(build_train(in), Slot::Kind::param), 5000 + 4800 + 6 * 1000);
  in.policy.forward_prefetch = 1;  // the larger depth decides
  in.policy.backward_prefetch = 3;
  EXPECT_EQ(total(build_train(in), Slot::Kind::param), 5000 + 4 * 1000);
}

TEST(Counts, MinimumMemoryForBlocksOfManySizes) {
  ScheduleInput in = schedule_input({.num_blocks = 8}, make_strategy("3", 4, 0, 2), 2);
  for (int b = 0; b < 8; ++b) in.units[static_cast<std::size_t>(1 + b)].numel = b < 4 ? 500 + 10 * b : 2000 + 10 * b;
  const Schedule s = build_train(in);
  EXPECT_NO_THROW(require_safe(s, in.mesh));
  // Two slots for the small blocks, two for the large ones, each as large as its largest unit.
  EXPECT_LE(total(s, Slot::Kind::param), 5000 + 100 + 2 * 530 + 2 * 2070);
  EXPECT_GE(total(s, Slot::Kind::param), 5000 + 100 + 2 * 520 + 2 * 2060);
}

TEST(Counts, GradientAccumulators) {
  const auto accumulators = [](const char* word, int world, int num_micro, Reduce reduce, bool reproducible) {
    ScheduleInput in = schedule_input({}, make_strategy(word, world, 0, 2), num_micro);
    in.policy.reduce = reduce;
    in.policy.reproducible = reproducible;
    return build_train(in).units.front().num_accumulators;
  };
  for (const char* word : {"2", "3", "HYBRID_SHARD"}) {
    EXPECT_EQ(accumulators(word, 4, 1, Reduce::each, false), 1);
    EXPECT_EQ(accumulators(word, 4, 5, Reduce::each, false), 1);
    EXPECT_EQ(accumulators(word, 4, 5, Reduce::last, false), 0);
  }
  for (const char* word : {"0", "1"}) {
    EXPECT_EQ(accumulators(word, 4, 1, Reduce::each, false), 0);
    EXPECT_EQ(accumulators(word, 4, 1, Reduce::each, true), 0);
    EXPECT_EQ(accumulators(word, 4, 5, Reduce::each, false), 1);
    EXPECT_EQ(accumulators(word, 4, 5, Reduce::last, false), 0);
  }
  for (const auto& [num_micro, expected] : {std::pair{2, 2}, {3, 2}, {4, 3}, {7, 3}, {8, 4}, {64, 7}}) {
    EXPECT_EQ(accumulators("3", 4, num_micro, Reduce::each, true), expected) << num_micro;
  }
  ScheduleInput in = schedule_input({}, make_strategy("3", 4, 0, 2), 2);
  in.policy.reproducible = true;
  in.policy.reduce = Reduce::last;
  EXPECT_THROW((void)build_train(in), std::logic_error);
}

TEST(Counts, ShardEachReducesOverReplicasOnce) {
  sweep("HYBRID_SHARD", [](ScheduleInput& in, int blocks, int num_micro, int) {
    const int units = blocks + 2;
    const Schedule each = build_train(in);
    EXPECT_EQ(count(each).reduces, units * num_micro);
    EXPECT_EQ(count_replicated(each), units * num_micro);
    in.policy.reduce = Reduce::shard_each;
    EXPECT_EQ(count(build_train(in)), count(each));
    EXPECT_EQ(count_replicated(build_train(in)), units);
    in.policy.reduce = Reduce::last;
    EXPECT_EQ(count(build_train(in)).reduces, units);
    EXPECT_EQ(count_replicated(build_train(in)), units);
  });
}

// A unit without replicate axes has the same list; one without shard axes adds its gradients in their slot.
TEST(Counts, ShardEachOfOneAxis) {
  for (const char* word : {"0", "1", "2", "3"}) {
    ScheduleInput in = schedule_input({.num_blocks = 2}, make_strategy(word, 4, 0, 2), 3);
    in.policy.reduce = Reduce::shard_each;
    const std::string text_of_mode = text(build_train(in));
    in.policy.reduce = *word == '0' ? Reduce::last : Reduce::each;
    EXPECT_EQ(text_of_mode, text(build_train(in))) << word;
  }
}

// The sums as expressions: the binary counter gives the reduction tree of docs/numerics.md, which depends on A alone.
TEST(Counts, TheBinaryCounterIsTheTreeOverMicroBatches) {
  const auto tree = [](auto&& self, int first, int count) -> std::string {
    if (count == 1) return std::to_string(first);
    int left = 1;
    while (2 * left < count) left *= 2;
    return "(" + self(self, first, left) + "+" + self(self, first + left, count - left) + ")";
  };
  for (int num_micro = 2; num_micro <= 33; ++num_micro) {
    ScheduleInput in = schedule_input({.num_blocks = 0}, make_strategy("2", 4, 0, 2), num_micro);
    in.policy.reproducible = true;
    const Schedule s = build_train(in);
    std::vector<std::string> accumulator(static_cast<std::size_t>(s.units.front().num_accumulators));
    for (const Instruction& i : s.list) {
      if (i.op != Op::reduce_scatter || i.unit != 0) continue;
      std::string x = std::to_string(i.micro);
      for (const int p : i.accumulation.inputs) x = "(" + accumulator[static_cast<std::size_t>(p)] + "+" + x + ")";
      accumulator[static_cast<std::size_t>(i.accumulation.target)] = x;
    }
    EXPECT_EQ(accumulator[0], tree(tree, 0, num_micro)) << num_micro;
  }
}

TEST(Counts, EveryAccumulationAndPrefetchIsSafe) {
  for (const char* word : {"0", "1", "2", "3", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
    sweep(word, [](ScheduleInput& in, int, int, int) {
      EXPECT_NO_THROW(require_safe(build_train(in), in.mesh));
      in.policy.reproducible = true;
      in.params_in_place = true;
      EXPECT_NO_THROW(require_safe(build_train(in), in.mesh));
    });
  }
}

// The length of a 70B model's schedule: 82 units, 64 micro-batches. Every micro-batch but the first and the last adds
// the same instructions.
TEST(Counts, LongSchedulesGrowLinearly) {
  const auto built = [](int num_micro) {
    const ScheduleInput in = schedule_input({.num_blocks = 80}, make_strategy("3", 1024, 0, 8), num_micro);
    const Schedule s = build_train(in);
    EXPECT_NO_THROW(require_safe(s, in.mesh));
    return s;
  };
  const Schedule two = built(2), four = built(4), many = built(64);
  const auto length = [](const Schedule& s) { return static_cast<int>(s.list.size()); };
  const auto waits = [](const Schedule& s) {
    int sum = 0;
    for (const Instruction& in : s.list) sum += static_cast<int>(in.after.size());
    return sum;
  };
  EXPECT_EQ(length(many) - length(four), 30 * (length(four) - length(two)));
  EXPECT_EQ(waits(many) - waits(four), 30 * (waits(four) - waits(two)));
}

}  // namespace
}  // namespace tessera::test
