// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: first, middle and last values, against Hugging Face's formulas.

#include "runtime/train/lr_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "runtime/base/error.hpp"

namespace tessera::train {
namespace {

using Kind = LrSchedule::Kind;

LrSchedule make(Kind kind) {
  return {
      .kind = kind, .learning_rate = 3e-4, .min_lr = 3e-5, .warmup_steps = 10, .total_steps = 110, .decay_steps = 20};
}

TEST(LrSchedule, WarmUpIsLinearFromZeroInEveryKind) {
  for (const auto kind : {Kind::constant, Kind::linear, Kind::cosine, Kind::cosine_with_min_lr, Kind::wsd}) {
    const auto lr = make(kind);
    EXPECT_EQ(lr.at(0), 0);
    EXPECT_DOUBLE_EQ(lr.at(1), 3e-5);
    EXPECT_DOUBLE_EQ(lr.at(9), 2.7e-4);
    EXPECT_DOUBLE_EQ(lr.at(10), 3e-4);
  }
}

TEST(LrSchedule, MiddleAndLastValues) {
  EXPECT_EQ(make(Kind::constant).at(109), 3e-4);
  EXPECT_DOUBLE_EQ(make(Kind::linear).at(60), 1.5e-4);
  EXPECT_DOUBLE_EQ(make(Kind::linear).at(109), 3e-6);
  EXPECT_DOUBLE_EQ(make(Kind::cosine).at(60), 1.5e-4);
  EXPECT_DOUBLE_EQ(make(Kind::cosine).at(109), 3e-4 * 0.5 * (1 + std::cos(std::numbers::pi * 0.99)));
  EXPECT_DOUBLE_EQ(make(Kind::cosine_with_min_lr).at(60), 0.5 * (3e-4 + 3e-5));
  EXPECT_DOUBLE_EQ(make(Kind::cosine_with_min_lr).at(109),
                   3e-5 + 2.7e-4 * 0.5 * (1 + std::cos(std::numbers::pi * 0.99)));
  EXPECT_EQ(make(Kind::wsd).at(89), 3e-4);
  EXPECT_DOUBLE_EQ(make(Kind::wsd).at(90), 3e-4);
  EXPECT_DOUBLE_EQ(make(Kind::wsd).at(100), 0.5 * (3e-4 + 3e-5));
  EXPECT_DOUBLE_EQ(make(Kind::wsd).at(109), 3e-5 + 2.7e-4 * 0.05);
}

TEST(LrSchedule, AfterTheEndItIsConstant) {
  EXPECT_EQ(make(Kind::linear).at(110), 0);
  EXPECT_EQ(make(Kind::linear).at(200), 0);
  EXPECT_EQ(make(Kind::cosine).at(200), 0);
  EXPECT_DOUBLE_EQ(make(Kind::cosine_with_min_lr).at(200), 3e-5);
  EXPECT_DOUBLE_EQ(make(Kind::wsd).at(200), 3e-5);
}

TEST(LrSchedule, OddLengths) {
  const LrSchedule no_warmup{.kind = Kind::cosine, .learning_rate = 1, .warmup_steps = 0, .total_steps = 1};
  EXPECT_EQ(no_warmup.at(0), 1);
  const LrSchedule only_warmup{.kind = Kind::linear, .learning_rate = 1, .warmup_steps = 5, .total_steps = 5};
  EXPECT_DOUBLE_EQ(only_warmup.at(4), 0.8);
  EXPECT_EQ(only_warmup.at(5), 0);
  const LrSchedule all_decay{
      .kind = Kind::wsd, .learning_rate = 1, .warmup_steps = 2, .total_steps = 6, .decay_steps = 100};
  EXPECT_EQ(all_decay.at(2), 1);
  EXPECT_DOUBLE_EQ(all_decay.at(4), 0.5);
}

TEST(LrSchedule, Words) {
  EXPECT_EQ(parse_lr_kind("constant"), Kind::constant);
  EXPECT_EQ(parse_lr_kind("constant_with_warmup"), Kind::constant);
  EXPECT_EQ(parse_lr_kind("linear"), Kind::linear);
  EXPECT_EQ(parse_lr_kind("cosine"), Kind::cosine);
  EXPECT_EQ(parse_lr_kind("cosine_with_min_lr"), Kind::cosine_with_min_lr);
  EXPECT_EQ(parse_lr_kind("wsd"), Kind::wsd);
  EXPECT_EQ(parse_lr_kind("warmup_stable_decay"), Kind::wsd);
  try {
    (void)parse_lr_kind("polynomial");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(error.line().find("polynomial"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::train
