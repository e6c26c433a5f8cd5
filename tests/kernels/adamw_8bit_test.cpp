// SPDX-License-Identifier: Apache-2.0
// AdamW with 8-bit moments: the code is bitsandbytes', the nearest value is found, a step is AdamW's on the decoded
// moments, with the same bits on every instruction set and number of threads; distance from fp32 moments.
#include "kernels/adamw_8bit.hpp"

#include <cstdio>

#include "dynamic_code_golden.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr double adamw_8bit_decay = 0.1;

struct BlockState {
  std::vector<float> param, m_absmax, v_absmax;
  std::vector<std::uint8_t> m, v;
  explicit BlockState(std::int64_t n)
      : param(random_vector<float>(n, 1)),
        m_absmax(static_cast<std::size_t>((n + 255) / 256)),
        v_absmax(m_absmax.size()),
        m(param.size()),
        v(param.size()) {}
  void step(std::vector<float>& grad, const AdamWScalars& scalars, std::span<const UpdateSegment> segments,
            const TensorView& copy = {}) {
    const UpdateDecision decision{.clip = 0.9};
    adamw_8bit(
        {.update =
             {.param = view(param), .grad = view(grad), .decision = &decision, .segments = segments, .copy = copy},
         .exp_avg = {view(m), view(m_absmax)},
         .exp_avg_sq = {view(v), view(v_absmax)},
         .scalars = &scalars},
        host_stream);
  }
  void step(std::vector<float>& grad, const AdamWScalars& scalars) {
    const UpdateSegment all{
        .begin = 0, .end = static_cast<std::int64_t>(param.size()), .weight_decay = adamw_8bit_decay};
    step(grad, scalars, {&all, 1});
  }
  friend bool operator==(const BlockState&, const BlockState&) = default;
};

AdamWScalars block_scalars(int step) {
  AdamWScalars s{.learning_rate = 3e-3};
  s.bias_correction1 = 1 - std::pow(s.beta1, step);
  s.sqrt_bias_correction2 = std::sqrt(1 - std::pow(s.beta2, step));
  return s;
}

std::vector<float> block_gradient(std::int64_t n, int step) {
  auto g = random_vector<float>(n, static_cast<std::uint64_t>(100 + step), 0.1);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] *= std::exp(4 * std::sin(static_cast<float>(i)));
  for (std::size_t i = 0; i < g.size() && i / 256 == 1; ++i) g[i] = 0;
  return g;
}

/// The nearest of the values, the lower of two equally near; by trying all.
int nearest(const float* values, float x) {
  int best = 0;
  for (int i = 1; i < 256; ++i)
    if (std::abs(static_cast<double>(values[i]) - static_cast<double>(x)) <
        std::abs(static_cast<double>(values[best]) - static_cast<double>(x)))
      best = i;
  return best;
}

TEST(DynamicCode, ThresholdsFindTheNearestValue) {
  for (const DynamicCode* code : {&signed_dynamic_code, &unsigned_dynamic_code})
    for (int i = 0; i + 1 < 256; ++i) {
      ASSERT_LT(code->values[i], code->values[i + 1]);
      const float t = code->thresholds[i];
      EXPECT_EQ(nearest(code->values, t), i);
      EXPECT_EQ(nearest(code->values, std::nextafter(t, 2.0F)), i + 1);
    }
}

/// The portable function of bitsandbytes takes the nearest value, up to the rounding of x / magnitude; the native one
/// approximates (make_dynamic_code.py).
void expect_golden(const DynamicCode& code, const float* input, const float* absmax, const std::uint8_t* codes,
                   const std::uint8_t* native) {
  int other = 0, other_native = 0, large = 0;
  for (int first = 0; first < golden_count; first += 256) {
    float largest = 0;
    for (int i = first; i < std::min(first + 256, golden_count); ++i) largest = std::max(largest, std::abs(input[i]));
    EXPECT_EQ(largest, absmax[first / 256]);
    for (int i = first; i < std::min(first + 256, golden_count); ++i) {
      const int ours = nearest(code.values, input[i] / largest);
      EXPECT_LE(std::abs(ours - codes[i]), 1) << i;
      other += ours != codes[i];
      if (std::abs(input[i]) < 1e-3F * largest) continue;
      ++large;
      EXPECT_LE(std::abs(ours - native[i]), 1) << i;
      other_native += ours != native[i];
    }
  }
  EXPECT_LE(other, 2);
  EXPECT_LT(other_native, large / 20);
}

TEST(DynamicCode, CodesAreBitsandbytes) {
  expect_golden(signed_dynamic_code, signed_input, signed_absmax, signed_codes, signed_native_codes);
  expect_golden(unsigned_dynamic_code, unsigned_input, unsigned_absmax, unsigned_codes, unsigned_native_codes);
}

TEST(AdamW8Bit, AStepIsAdamWsOnTheDecodedMomentsToTheBit) {
  const std::int64_t n = 5 * 4096 + 300;
  BlockState truth(n);
  std::vector<BlockState> states;
  const auto sets = instruction_sets();
  for (std::size_t i = 0; i < 3 * sets.size(); ++i) states.emplace_back(n);
  for (int step = 1; step <= 6; ++step) {
    auto g = block_gradient(n, step);
    const AdamWScalars s = block_scalars(step);
    std::vector<float> m(truth.param.size()), v(m.size());
    for (std::size_t i = 0; i < m.size(); ++i) {
      m[i] = signed_dynamic_code.values[truth.m[i]] * truth.m_absmax[i / 256];
      v[i] = unsigned_dynamic_code.values[truth.v[i]] * truth.v_absmax[i / 256];
    }
    const UpdateDecision decision{.clip = 0.9};
    const UpdateSegment all{.begin = 0, .end = n, .weight_decay = adamw_8bit_decay};
    adamw({.update = {.param = view(truth.param), .grad = view(g), .decision = &decision, .segments = {&all, 1}},
           .exp_avg = view(m),
           .exp_avg_sq = view(v),
           .scalars = &s},
          host_stream);
    for (std::size_t first = 0; first < m.size(); first += 256) {
      const std::size_t last = std::min(first + 256, m.size());
      const auto store = [&](const std::vector<float>& x, const DynamicCode& code, std::vector<std::uint8_t>& codes,
                             std::vector<float>& absmax) {
        float largest = 0;
        for (std::size_t i = first; i < last; ++i) largest = std::max(largest, std::abs(x[i]));
        absmax[first / 256] = largest;
        for (std::size_t i = first; i < last; ++i)
          codes[i] = static_cast<std::uint8_t>(nearest(code.values, x[i] / (largest > 0 ? largest : 1)));
      };
      store(m, signed_dynamic_code, truth.m, truth.m_absmax);
      store(v, unsigned_dynamic_code, truth.v, truth.v_absmax);
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      const Setting setting(static_cast<int>(i % 3) + 1, sets[i / 3]);
      states[i].step(g, s);
      ASSERT_TRUE(states[i] == truth) << name_of(sets[i / 3]) << " step " << step;
    }
  }
}

TEST(AdamW8Bit, SegmentsAreUpdatedAndNothingElse) {
  const std::int64_t n = 9001;
  const std::vector<UpdateSegment> segments{{256, 600, 1, adamw_8bit_decay}, {1024, 5000, 1, adamw_8bit_decay}};
  auto g = block_gradient(n, 1);
  BlockState alone(n), state(n);
  const BlockState before(n);
  std::vector<bf16> copy(static_cast<std::size_t>(n));
  state.step(g, block_scalars(1), segments, view(copy));
  for (const UpdateSegment& segment : segments) alone.step(g, block_scalars(1), {&segment, 1});
  EXPECT_TRUE(state == alone);
  for (std::int64_t at = 0; at < n; ++at) {
    const auto i = static_cast<std::size_t>(at);
    const bool inside = (at >= 256 && at < 600) || (at >= 1024 && at < 5000);
    ASSERT_EQ(state.param[i] != before.param[i], inside) << i;
    ASSERT_EQ(copy[i].bits, inside ? bf16(state.param[i]).bits : bf16(0.0F).bits) << i;
    if (!inside) { ASSERT_EQ(state.m[i], 0) << i; }
  }
  const UpdateSegment crooked{128, 600, 1, 0};
  EXPECT_THROW(state.step(g, block_scalars(1), {&crooked, 1}), std::logic_error);
}

/// Least squares by 1,000 steps with noisy gradients, with fp32 and with 8-bit moments; prints how far apart they end.
TEST(AdamW8Bit, AThousandStepsEndNearFp32) {
  const std::int64_t n = 4096;
  const auto goal = random_vector<float>(n, 9);
  BlockState blocks(n);
  std::vector<float> param = blocks.param, m(param.size()), v(param.size());
  const auto distance = [&](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i] - b[i]), 2);
    return std::sqrt(sum / static_cast<double>(n));
  };
  const double at_first = distance(param, goal);
  for (int step = 1; step <= 1000; ++step) {
    const auto noise = random_vector<float>(n, static_cast<std::uint64_t>(1000 + step), 0.1);
    AdamWScalars s = block_scalars(step);
    s.learning_rate = 1e-2 * (1 - static_cast<double>(step) / 1001);
    const auto gradient_of = [&](const std::vector<float>& x) {
      std::vector<float> g(x.size());
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = x[i] - goal[i] + noise[i];
      return g;
    };
    const UpdateSegment all{.begin = 0, .end = n};
    const UpdateDecision decision{.clip = 0.9};
    auto g = gradient_of(blocks.param), h = gradient_of(param);
    blocks.step(g, s, {&all, 1});
    adamw({.update = {.param = view(param), .grad = view(h), .decision = &decision, .segments = {&all, 1}},
           .exp_avg = view(m),
           .exp_avg_sq = view(v),
           .scalars = &s},
          host_stream);
  }
  const double ours = distance(blocks.param, goal), fp32 = distance(param, goal), apart = distance(blocks.param, param);
  std::printf("1000 steps from %.4f: fp32 moments %.5f from the goal, 8-bit %.5f; %.5f apart\n", at_first, fp32, ours,
              apart);
  EXPECT_LT(ours - fp32, 0.02 * at_first);
  EXPECT_LT(apart, 0.04 * at_first);
}

}  // namespace
}  // namespace tessera::kernels
