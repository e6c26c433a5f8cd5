// SPDX-License-Identifier: Apache-2.0
// Choices of algorithms as text: exactly what is written is read.
#include "kernels/cuda/gemm_choice.hpp"

#include <gtest/gtest.h>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels::cuda {
namespace {

GemmPlan plan_of(std::int64_t m) {
  GemmPlan plan;
  plan.m = m, plan.n = 6, plan.k = 8;
  return plan;
}

constexpr GemmChoice choice{{1, 0xffffffffffffffff, 3, 4, 5, 6, 7, 0x123456789abcdef0}, 1474123};

GemmChoices two_choices() {
  GemmChoices choices("cuBLASLt 1 on this");
  choices.keep(plan_of(4), choice);
  choices.keep(plan_of(5), {});
  return choices;
}

/// The exit code with which the text is refused; ok: accepted.
ExitCode refused(const std::string& text, const char* identity = "cuBLASLt 1 on this") {
  GemmChoices choices(identity);
  try {
    (void)choices.take(text, "a test");
  } catch (const Error& error) { return error.code(); }
  return ExitCode::ok;
}

/// The same lines with a correct checksum: a deliberate change.
std::string resummed(const std::string& text) {
  const std::string lines = text.substr(0, text.rfind("sum "));
  return lines + strfmt("sum %016llx\n", static_cast<unsigned long long>(hash64(lines)));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(GemmChoices, OutliveTheProcess) {
  const std::string text = two_choices().text();
  GemmChoices read("cuBLASLt 1 on this");
  EXPECT_EQ(read.take(text, "a test"), 2u);
  EXPECT_EQ(read.find(plan_of(4)), choice);
  EXPECT_EQ(read.find(plan_of(5)), GemmChoice{});
  EXPECT_FALSE(read.find(plan_of(6)));
  EXPECT_EQ(read.text(), text);
  read.forget(plan_of(4));
  EXPECT_FALSE(read.find(plan_of(4)));
  EXPECT_TRUE(read.find(plan_of(5)));
  EXPECT_EQ(GemmChoices("x").take(GemmChoices("x").text(), "a test"), 0u);
}

TEST(GemmChoices, OfVersion1AreReadWithoutTimes) {
  std::string text = replaced(two_choices().text(), "tessera, 2", "tessera, 1");
  text = resummed(replaced(replaced(text, " in 1474123 ns", ""), " in 0 ns", ""));
  GemmChoices read("cuBLASLt 1 on this");
  EXPECT_EQ(read.take(text, "a test"), 2u);
  EXPECT_EQ(read.find(plan_of(4)), (GemmChoice{choice.algorithm}));
  EXPECT_EQ(read.text(), resummed(replaced(two_choices().text(), "1474123", "0")));
  for (std::size_t i = 0; i < text.size(); ++i) EXPECT_NE(refused(text.substr(0, i)), ExitCode::ok) << i << " bytes";
}

TEST(GemmChoices, OfAnotherDeviceAreRefused) {
  EXPECT_EQ(refused(two_choices().text(), "cuBLASLt 2 on this"), ExitCode::usage);
}

TEST(GemmChoices, EveryDamagedByteIsRefused) {
  const std::string text = two_choices().text();
  ASSERT_EQ(refused(text), ExitCode::ok);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] ^= 1;
    EXPECT_NE(refused(damaged), ExitCode::ok) << "byte " << i;
    EXPECT_NE(refused(text.substr(0, i)), ExitCode::ok) << i << " bytes";
  }
}

TEST(GemmChoices, WhatIsNotWrittenSoIsRefusedUnderARightSum) {
  const std::string text = two_choices().text();
  EXPECT_EQ(resummed(text), text);
  for (const std::string& other :
       {replaced(text, "ffffffffffffffff", "FFFFFFFFFFFFFFFF"), replaced(text, "ffffffffffffffff", "fffffffffffffff"),
        replaced(text, "ffffffffffffffff", "-000000000000001"), replaced(text, "sum", "no choice\nsum"),
        replaced(text, " = ", " == "), replaced(text, "4x6x8", "9x6x8"), replaced(text, "tessera, 2", "tessera, 3"),
        replaced(text, "tessera, 2", "tessera, 1"), replaced(text, " in 1474123 ns", ""),
        replaced(text, "1474123", "01474123"), replaced(text, " ns", " us")})
    EXPECT_EQ(refused(resummed(other)), ExitCode::data) << other;
  EXPECT_EQ(refused(""), ExitCode::data);
  EXPECT_EQ(refused(std::string(1000, '\0')), ExitCode::data);
  EXPECT_EQ(refused(text + text), ExitCode::data);
}

}  // namespace
}  // namespace tessera::kernels::cuda
