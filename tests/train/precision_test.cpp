// SPDX-License-Identifier: Apache-2.0
// Mixed precision: bit equality as in fp32; gathered parameters are rounded masters; the loss is close to fp32's.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/threads.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

class Bf16 : public ::testing::Test {
 protected:
  models::Model model_ = models::make(config_json({}), "test", DType::bf16);
  RandomTokens tokens_{400, 37};

  Outcome outcome(const Variant& variant, int steps = 2) {
    return run({&model_, &tokens_, steps, "", true, {}}, variant);
  }
};

TEST_F(Bf16, SameBitsAtEveryStageAndTransport) {
  for (const int world : {1, 2, 3, 4})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last})
      for (const DType reduce_dtype : {DType::f32, DType::bf16}) {
        const Variant base{.world = world,
                           .strategy = "0",
                           .global_batch = 7,
                           .reduce = reduce,
                           .dtype = DType::bf16,
                           .reduce_dtype = reduce_dtype};
        const Outcome first = outcome(base);
        for (const double loss : first.losses) EXPECT_GT(loss, 1.0);
        for (const char* stage : {"1", "2", "3"})
          for (const bool copies : {false, true}) {
            Variant v = base;
            v.strategy = stage;
            v.copies = copies;
            EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
          }
      }
}

TEST_F(Bf16, SchedulingKnobsChangeNoBit) {
  for (const char* stage : {"0", "2", "3"})
    for (const DType reduce_dtype : {DType::f32, DType::bf16}) {
      const Variant base{.world = 4,
                         .strategy = stage,
                         .global_batch = 10,
                         .copies = true,
                         .dtype = DType::bf16,
                         .reduce_dtype = reduce_dtype};
      const Outcome first = outcome(base);
      const auto same = [&](const Variant& v) { EXPECT_EQ(difference(first, outcome(v)), "") << v.str(); };
      Variant v = base;
      v.prefetch = 2;
      same(v);
      v.recompute = true;
      same(v);
      v.reshard = false;
      same(v);
      v.streams = Stream::Mode::deferred;  // a missing wait would show
      same(v);
      v.copies = false;
      same(v);
      v.ranks_per_node = 2;
      same(v);
    }
}

TEST_F(Bf16, ReproducibleAtAnyPowerOfTwo) {
  for (const DType reduce_dtype : {DType::f32, DType::bf16}) {
    const Variant base{
        .world = 1, .global_batch = 8, .reproducible = true, .dtype = DType::bf16, .reduce_dtype = reduce_dtype};
    const Outcome first = outcome(base);
    for (const auto& [world, strategy] : {std::pair{2, "0"}, {2, "3"}, {4, "1"}, {4, "HYBRID_SHARD"}, {8, "3"}}) {
      Variant v = base;
      v.world = world;
      v.strategy = strategy;
      v.group = strategy[0] == 'H' ? 2 : 0;
      EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
    }
  }
}

TEST_F(Bf16, GatheredParametersAreRoundedMasters) {
  for (const char* strategy : {"0", "2"}) {  // strategies with resident parameters
    int checked = 0;
    RunInput input{&model_, &tokens_, 3, "", false, {}};
    input.after_step = [&](train::Trainer& trainer) {
      if (trainer.world().rank() != 0) return;
      const auto& layout = trainer.plan().layout;
      for (const auto& view : trainer.shards()) {
        const auto* gathered =
            reinterpret_cast<const bf16*>(trainer.arena().data("param." + layout.unit_name(view.unit)));
        const std::int64_t first = view.shard * layout.shard_numel(view.unit);
        for (const auto& s : layout.segments(view.unit, view.shard))
          for (std::int64_t i = s.unit_offset; i < s.unit_offset + s.length; ++i, ++checked)
            ASSERT_EQ(gathered[i].bits, bf16(view.data.as<float>()[i - first]).bits)
                << strategy << ", unit " << view.unit << " at " << i;
      }
    };
    (void)run(input, {.world = 2, .strategy = strategy, .copies = true, .dtype = DType::bf16});
    EXPECT_GT(checked, 1000);
  }
}

TEST_F(Bf16, LossEqualsFp32ToThreeDigits) {
  // A sequence with a pattern: the fp32 loss falls from ln 37 to well under 1, and bf16 follows it.
  std::vector<std::int32_t> ids(600);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 37);
  const RandomTokens pattern(ids);
  const models::Model fp32 = models::make(config_json({}), "test");
  const Variant v{.world = 2, .global_batch = 8, .micro_batch = 4, .tokens = 16};
  Variant half = v;
  half.dtype = DType::bf16;
  Variant quarter = half;
  quarter.reduce_dtype = DType::bf16;
  const Outcome a = run({&fp32, &pattern, 40, "", false, {}}, v);
  for (const Variant& variant : {half, quarter}) {
    const Outcome b = run({&model_, &pattern, 40, "", false, {}}, variant);
    EXPECT_LT(a.losses.back(), 0.6 * a.losses.front());
    for (std::size_t s = 0; s < a.losses.size(); ++s)
      EXPECT_NEAR(b.losses[s], a.losses[s], 0.02 * a.losses[s]) << variant.str() << " step " << s;
  }
}

class Fp16 : public ::testing::Test {
 protected:
  models::Model model_ = models::make(config_json({}), "test", DType::f16);
  RandomTokens tokens_{400, 37};
};

TEST_F(Fp16, SameBitsAtEveryStage) {
  const Variant base{.world = 3, .strategy = "0", .global_batch = 7, .dtype = DType::f16};
  const Outcome first = run({&model_, &tokens_, 3, "", true, {}}, base);
  for (const char* stage : {"1", "2", "3"})
    for (const DType reduce_dtype : {DType::f32, DType::f16}) {
      Variant v = base;
      v.strategy = stage;
      v.reduce_dtype = reduce_dtype;
      const Outcome o = run({&model_, &tokens_, 3, "", true, {}}, v);
      if (reduce_dtype == DType::f32) {
        EXPECT_EQ(difference(first, o), "") << v.str();
      } else {
        EXPECT_NEAR(o.losses.back(), first.losses.back(), 1e-3);
      }
    }
}

TEST_F(Fp16, AnOverflowSkipsTheStepAndLeavesEveryBit) {
  for (const char* strategy : {"0", "2", "3"})
    for (const bool copies : {false, true}) {
      Variant v{.world = 2, .strategy = strategy, .copies = copies, .dtype = DType::f16};
      v.loss_scale.initial = 0x1p30;  // gradients of about 2^-3 leave fp16's range at 2^19
      run_local(
          2,
          [&](World& world) {
            kernels::set_threads(1);
            train::Trainer trainer(world, options_of(model_, v, 20));
            trainer.initialize();
            const io::Sampler sampler(40, true, 1);
            double scale = 0x1p30;
            int skipped = 0, taken = 0;
            for (int s = 0; s < 20; ++s) {
              const std::uint64_t before = trainer.state_hash();
              const auto report = trainer.step(tokens_, sampler, (s * 4) % 36, 4);
              EXPECT_EQ(report.step, s + 1);
              EXPECT_EQ(report.loss_scale, scale);
              EXPECT_EQ(trainer.state_hash() == before, report.skipped) << "step " << s;
              // The learning-rate schedule counts updates, not steps.
              EXPECT_EQ(report.learning_rate, options_of(model_, v, 20).lr.at(taken));
              if (report.skipped) scale /= 2;
              (report.skipped ? skipped : taken) += 1;
              EXPECT_TRUE(report.skipped || (std::isfinite(report.loss) && std::isfinite(report.grad_norm)));
            }
            EXPECT_EQ(trainer.loss_scale()->scale, scale);
            EXPECT_EQ(trainer.skipped_steps(), skipped);
            EXPECT_GT(skipped, 3);
            EXPECT_GT(taken, 3);
          },
          copies);
    }
}

TEST_F(Fp16, TheScaleChangesNothingWhereNothingOverflowsOrVanishes) {
  // Scaling by a power of two changes only what is below fp16's range.
  Variant v{.world = 2, .global_batch = 4, .dtype = DType::f16};
  v.loss_scale.initial = 1024;
  const Outcome a = run({&model_, &tokens_, 3, "", false, {}}, v);
  v.loss_scale.initial = 2048;
  const Outcome b = run({&model_, &tokens_, 3, "", false, {}}, v);
  for (std::size_t s = 0; s < a.losses.size(); ++s) {
    EXPECT_NEAR(b.losses[s], a.losses[s], 1e-4);
    EXPECT_NEAR(b.norms[s], a.norms[s], 1e-3 * a.norms[s]);
  }
}

TEST_F(Fp16, TooManyOverflowsAtTheLeastScaleEndTheRun) {
  Variant v{.world = 2, .dtype = DType::f16};
  v.loss_scale.initial = 0x1p61;
  v.loss_scale.least = 0x1p60;
  v.loss_scale.patience = 3;
  int steps = 0;
  const auto endless = [&] {
    run_local(2, [&](World& world) {
      kernels::set_threads(1);
      train::Trainer trainer(world, options_of(model_, v, 20));
      trainer.initialize();
      const io::Sampler sampler(40, true, 1);
      for (int s = 0; s < 20; ++s) {
        (void)trainer.step(tokens_, sampler, 0, 4);
        if (world.rank() == 0) ++steps;
      }
    });
  };
  try {
    endless();
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::diverged);
    EXPECT_NE(error.line().find("overflow fp16"), std::string::npos) << error.line();
  }
  EXPECT_EQ(steps, 3);  // one halved the scale, two were at the least, the fourth exceeded the patience
}

// As DeepSpeed's DynamicLossScaler with delayed_shift 3, of which the expected scales are.
TEST(LossScaleTest, HysteresisToleratesTheFirstOverflows) {
  const auto scales = [](bool consecutive, const std::string& steps) {
    train::LossScale scale({.initial = 64, .window = 2, .hysteresis = 3, .consecutive_hysteresis = consecutive});
    std::vector<double> list;
    for (const char step : steps) {
      if (step == '.') scale.passed();
      else EXPECT_TRUE(scale.overflowed());
      train::LossScale resumed({.initial = 64, .window = 2, .hysteresis = 3, .consecutive_hysteresis = consecutive});
      resumed.resume(scale.state());
      scale = resumed;
      list.push_back(scale.scale());
    }
    return list;
  };
  EXPECT_EQ(scales(false, "x.xxx..xxx"), (std::vector<double>{64, 64, 64, 32, 16, 16, 32, 32, 32, 16}));
  EXPECT_EQ(scales(true, "x.xxx..xxx"), (std::vector<double>{64, 64, 64, 64, 32, 32, 64, 64, 64, 32}));
}

TEST(LossScaleTest, HalvesAtOnceAndDoublesAfterItsWindow) {
  train::LossScale scale({.initial = 8, .least = 2, .most = 16, .window = 3, .patience = 2});
  EXPECT_TRUE(scale.overflowed());
  EXPECT_EQ(scale.scale(), 4);
  for (const double expected : {4.0, 4.0, 8.0, 8.0, 8.0, 16.0, 16.0, 16.0, 16.0}) {
    scale.passed();
    EXPECT_EQ(scale.scale(), expected);
  }
  scale.passed();
  EXPECT_TRUE(scale.overflowed());
  EXPECT_EQ(scale.state(), (train::LossScaleState{8, 0, 0}));
  EXPECT_TRUE(scale.overflowed() && scale.overflowed());  // 4, 2
  EXPECT_TRUE(scale.overflowed());
  scale.passed();  // patience starts again
  EXPECT_TRUE(scale.overflowed());
  // Resumed here, the next overflow at the least scale exceeds the patience, too.
  train::LossScale again({.initial = 8, .least = 2, .most = 16, .window = 3, .patience = 2});
  again.resume(scale.state());
  EXPECT_FALSE(scale.overflowed());
  EXPECT_FALSE(again.overflowed());
}

}  // namespace
}  // namespace tessera::test
