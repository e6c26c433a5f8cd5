// SPDX-License-Identifier: Apache-2.0
// The verifier's messages, and the instructions they name. The mutation test shows that it misses nothing.

#include "runtime/shard/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/shard/context.hpp"
#include "runtime/shard/tensor.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;
using testing::HasSubstr;

const Mesh sharded(1, 4);

Schedule zero3() { return build_train(schedule_input({.num_blocks = 3}, {"ZeRO-3", sharded, {}}, 2)); }

int find(const Schedule& s, Op op, int index, int micro) {
  for (int i = 0; i < static_cast<int>(s.list.size()); ++i) {
    const Instruction& in = s.list[static_cast<std::size_t>(i)];
    if (in.op == op && (in.unit == index || in.module == index) && in.micro == micro) return i;
  }
  ADD_FAILURE() << "no such instruction";
  return 0;
}

std::string first_violation(const Schedule& s, const Mesh& mesh = sharded) {
  const auto violations = verify(s, mesh);
  return violations.empty() ? "safe" : violations.front().what;
}

TEST(Verify, LowPrecisionParametersDoNotChangeTheSchedule) {
  // The schedule does not depend on whether updates also write a low-precision copy.
  for (const char* word : {"0", "1", "2", "3", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"})
    for (const bool in_place : {false, true}) {
      ScheduleInput in = schedule_input({.num_blocks = 3}, make_strategy(word, 4, 0, 2), 2);
      in.params_in_place = in_place;
      const Schedule fp32 = build_train(in);
      in.policy.param_dtype = DType::bf16;
      const Schedule rounded = build_train(in);
      EXPECT_EQ(text(rounded), text(fp32)) << word;
      EXPECT_TRUE(rounded.units[0].has_separate_masters() && !fp32.units[0].has_separate_masters());
      EXPECT_TRUE(verify(rounded, in.mesh).empty()) << word;
    }
}

TEST(Verify, Int8IsInTextAndHashAndNeedsAxesAndFp32) {
  const Strategy hybrid = make_strategy("HYBRID_SHARD", 4, 2, 2);
  ScheduleInput in = schedule_input({.num_blocks = 2}, hybrid, 1);
  const Schedule plain = build_train(in);
  for (UnitInput& unit : in.units) unit.int8 = {.gather = true, .all_reduce = true, .error_feedback = true};
  const Schedule int8 = build_train(in);
  EXPECT_TRUE(verify(int8, in.mesh).empty());
  EXPECT_NE(collective_hash(int8), collective_hash(plain));
  EXPECT_THAT(text(int8), HasSubstr("int8 + residual, last"));
  const auto changed = [&](const std::function<void(ScheduledUnit&)>& change) {
    Schedule s = int8;
    change(s.units[1]);
    return first_violation(s, in.mesh);
  };
  EXPECT_EQ(changed([](ScheduledUnit& unit) { unit.params_in_place = true; }),
            "unit h.0 gathers int8 over its master weights");
  EXPECT_EQ(changed([](ScheduledUnit& unit) { unit.int8 = {.error_feedback = true}; }),
            "unit h.0 has residuals of nothing");
  EXPECT_EQ(changed([](ScheduledUnit& unit) {
              unit.int8.reduce_scatter = true;
              unit.reduce_dtype = DType::bf16;
            }),
            "unit h.0 encodes gradients that are not fp32");
  Schedule flat = build_train(schedule_input({.num_blocks = 2}, {"ZeRO-3", sharded, {}}, 1));
  flat.units[0].int8.all_reduce = true;
  EXPECT_EQ(first_violation(flat), "unit embed sends int8 over replicate axes, and has none");
}

TEST(Verify, GradientsAreSumsOverRanksThatShareRows) {
  ScheduleInput in = schedule_input({.num_blocks = 2}, with_context(make_strategy("3", 4, 0, 2), 2), 1);
  EXPECT_EQ(first_violation(build_train(in), in.mesh), "safe");
  for (UnitInput& unit : in.units) unit.policy = in.policy;
  in.units[1].policy->shard_axes = Mesh::data_axes();  // of two ranks of four
  EXPECT_THAT(first_violation(build_train(in), in.mesh), HasSubstr("unit h.0 is sharded over"));
  const Mesh experts({{Axis::shard, 2}, {Axis::expert, 2}});
  EXPECT_THAT(first_violation(build_train(schedule_input({}, {"ZeRO-3", experts, {}}, 1)), experts),
              HasSubstr("differ along axes that no instruction is about"));
}

/// Units of parts are summed over the data axes, those of replicated parameters over the tensor axis too, and none over
/// that axis alone.
TEST(Verify, GradientsOfPartsAreSumsOverTheDataAxes) {
  ScheduleInput in = schedule_input({.num_blocks = 2}, with_tensor(make_strategy("3", 4, 0, 2), 2), 1);
  for (UnitInput& unit : in.units) unit.policy = in.policy;
  in.units[0].policy = replicated(in.policy, in.mesh);
  EXPECT_EQ(first_violation(build_train(in), in.mesh), "safe");
  in.units[1].policy->shard_axes = Axis::tensor;
  EXPECT_THAT(first_violation(build_train(in), in.mesh), HasSubstr("unit h.0 is sharded over"));
}

TEST(Verify, AGatherThatIsNotWaitedFor) {
  Schedule s = zero3();
  const int i = find(s, Op::forward, 1, 0);
  s.list[static_cast<std::size_t>(i)].after.clear();
  EXPECT_EQ(first_violation(s), "forward h.0 m0 is not ordered after gather h.0 m0, which uses a unit it reads");
  EXPECT_EQ(verify(s, sharded).front().instruction, i);
}

TEST(Verify, ASlotTakenBeforeItIsReleased) {
  Schedule s = zero3();
  s.list[static_cast<std::size_t>(find(s, Op::gather, 3, 0))].after.clear();
  EXPECT_EQ(first_violation(s), "gather h.2 m0 is not ordered after release h.0 m0, which uses its slot");
}

TEST(Verify, AReduceThatDoesNotWait) {
  Schedule s = zero3();
  s.list[static_cast<std::size_t>(find(s, Op::reduce_scatter, 2, 1))].after.clear();
  EXPECT_EQ(first_violation(s),
            "reduce_scatter h.1 m1 is not ordered after backward h.1 m1, which uses its gradient slot");
}

TEST(Verify, ABackwardThatOverwritesWhatIsBeingReduced) {
  Schedule s = zero3();
  auto& after = s.list[static_cast<std::size_t>(find(s, Op::backward, 1, 0))].after;
  ASSERT_EQ(after.size(), 2u);
  after.pop_back();
  EXPECT_THAT(first_violation(s), HasSubstr("backward h.0 m0 is not ordered after reduce_scatter h.2 m0"));
}

TEST(Verify, AnUpdateBeforeTheNorm) {
  Schedule s = zero3();
  s.list[static_cast<std::size_t>(find(s, Op::update, 0, -1))].after.clear();
  EXPECT_THAT(first_violation(s), HasSubstr("is not ordered after norm"));
}

// In place, an owner's update must wait for its peers' reads; only the norm, which all ranks take part in, ensures
// that.
TEST(Verify, PeersAreReadersInPlace) {
  ScheduleInput in = schedule_input({.num_blocks = 1, .embed_reads_late = true}, {"ZeRO-3", sharded, {}}, 1);
  in.params_in_place = true;
  Schedule s = build_train(in);
  EXPECT_EQ(first_violation(s), "safe");
  const int backward = find(s, Op::backward, 0, 0);  // the embedding's, of module 0
  for (Instruction& instruction : s.list)
    if (instruction.op == Op::reduce_scatter || instruction.op == Op::norm) std::erase(instruction.after, backward);
  bool found = false;
  for (const Violation& v : verify(s, sharded))
    found |= v.what.find("backward embed m0 of a peer, which uses its interval") != std::string::npos;
  EXPECT_TRUE(found);
  for (ScheduledUnit& unit : s.units) unit.params_in_place = false;  // each rank has its own copy: peers do not matter
  for (const Violation& v : verify(s, sharded)) EXPECT_EQ(v.what.find("of a peer"), std::string::npos) << v.what;
}

TEST(Verify, AMicroBatchThatIsLeftOut) {
  ScheduleInput in = schedule_input({.num_blocks = 1}, {"ZeRO-2", sharded, {}}, 4);
  in.policy.shard_params = false;
  in.policy.reproducible = true;
  Schedule s = build_train(in);
  EXPECT_EQ(first_violation(s), "safe");
  s.list[static_cast<std::size_t>(find(s, Op::reduce_scatter, 0, 1))].accumulation.inputs.clear();
  EXPECT_EQ(first_violation(s), "reduce_scatter embed m2 overwrites accumulator 0");
}

TEST(Verify, FormComesFirst) {
  Schedule s = zero3();
  s.list[3].after.push_back(30);
  EXPECT_THAT(first_violation(s), HasSubstr("waits for instruction 30, which is not an earlier one"));
  s = zero3();
  s.list[0].slot = 99;
  EXPECT_THAT(first_violation(s), HasSubstr("names slot 99"));
  s = zero3();
  s.list[0].unit = -7;
  EXPECT_THAT(first_violation(s), HasSubstr("names no unit"));
  s = zero3();
  s.reads.pop_back();
  EXPECT_NE(first_violation(s), "safe");
  s = zero3();
  s.list[0].stream = StreamId::reduce;
  EXPECT_THAT(first_violation(s), HasSubstr("on the reduce stream"));
}

TEST(Verify, RequireSafeNamesMeshAndInstruction) {
  Schedule s = zero3();
  EXPECT_NO_THROW(require_safe(s, sharded));
  const int i = find(s, Op::forward, 1, 0);
  s.list[static_cast<std::size_t>(i)].after.clear();
  try {
    require_safe(s, sharded);
    FAIL();
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("{replicate 1, shard 4}"));
    EXPECT_THAT(e.what(), HasSubstr(std::to_string(i) + ": forward h.0 m0"));
  }
}

// A schedule for one rank gathers nothing; on a shard axis of two it would read stale parameters.
TEST(Verify, AScheduleIsProvedForItsMesh) {
  const Schedule s = build_train(schedule_input({}, make_strategy("3", 1, 0, 1), 1));
  EXPECT_EQ(first_violation(s, Mesh(1, 1)), "safe");
  EXPECT_EQ(first_violation(s, Mesh(1, 2)),
            "unit embed is sharded over {} and replicated over {}, on the mesh {replicate 1, shard 2}");
}

}  // namespace
}  // namespace tessera::test
