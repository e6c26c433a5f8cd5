// SPDX-License-Identifier: Apache-2.0
// AdamW: PyTorch's algorithm in double over many steps; the documented sequence to the bit on every instruction set and
// number of threads.
#include "kernels/adamw.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

struct State {
  std::vector<float> param, m, v;
  explicit State(std::int64_t n)
      : param(random_vector<float>(n, 1)), m(static_cast<std::size_t>(n)), v(static_cast<std::size_t>(n)) {}
  void step(std::vector<float>& grad, const AdamWScalars& scalars, double clip, double decay) {
    const UpdateSegment all{.begin = 0, .end = static_cast<std::int64_t>(param.size()), .weight_decay = decay};
    step(grad, scalars, clip, {&all, 1});
  }
  void step(std::vector<float>& grad, const AdamWScalars& scalars, double clip,
            std::span<const UpdateSegment> segments) {
    const UpdateDecision decision{.clip = clip};
    adamw({.update = {.param = view(param), .grad = view(grad), .decision = &decision, .segments = segments},
           .exp_avg = view(m),
           .exp_avg_sq = view(v),
           .scalars = &scalars},
          host_stream);
  }
};

constexpr double weight_decay = 0.1;

AdamWScalars scalars_at(int step) {
  AdamWScalars s{.learning_rate = 3e-3};
  s.bias_correction1 = 1 - std::pow(s.beta1, step);
  s.sqrt_bias_correction2 = std::sqrt(1 - std::pow(s.beta2, step));
  return s;
}

std::vector<float> gradient(std::int64_t n, int step) {
  auto g = random_vector<float>(n, static_cast<std::uint64_t>(100 + step), 0.1);
  const float extremes[] = {0.0F, -0.0F, 1e-30F, -1e-20F, 1e15F, -1e10F, 1e-38F, 1e-42F};
  for (std::size_t i = 0; i < std::size(extremes) && i < g.size(); ++i) g[i] = extremes[i];
  return g;
}

TEST(AdamW, MatchesPyTorchsAlgorithm) {
  for (const Isa set : instruction_sets())
    for (const bool decay : {true, false}) {
      const Setting setting(1, set);
      const std::int64_t n = 301;
      State state(n);
      std::vector<double> p(state.param.begin(), state.param.end()), m(p.size()), v(p.size());
      for (int step = 1; step <= 20; ++step) {
        auto g = gradient(n, step);
        const AdamWScalars s = scalars_at(step);
        state.step(g, s, 0.7, decay ? weight_decay : 0);
        for (std::size_t i = 0; i < p.size(); ++i) {
          const double grad = 0.7 * static_cast<double>(g[i]);
          if (decay) p[i] *= 1 - s.learning_rate * weight_decay;
          m[i] = s.beta1 * m[i] + (1 - s.beta1) * grad;
          v[i] = s.beta2 * v[i] + (1 - s.beta2) * grad * grad;
          p[i] -= s.learning_rate / s.bias_correction1 * m[i] / (std::sqrt(v[i]) / s.sqrt_bias_correction2 + s.eps);
          EXPECT_NEAR(static_cast<double>(state.param[i]), p[i], 4e-7 * step * (1 + std::abs(p[i])))
              << i << " step " << step;
        }
      }
    }
}

TEST(AdamW, FirstStepHasTheSizeOfTheLearningRate) {
  State state(5);
  const auto before = state.param;
  std::vector<float> g{1, -2, 0.5, 3, -1};
  const AdamWScalars s = scalars_at(1);
  state.step(g, s, 1, 0);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(static_cast<double>(state.param[i] - before[i]),
                std::copysign(s.learning_rate, -static_cast<double>(g[i])), 3e-7);
}

TEST(AdamW, TheWrittenSequenceToTheBit) {
  const std::int64_t n = 1003;
  State truth(n);
  std::vector<State> states;
  const auto sets = instruction_sets();
  for (std::size_t i = 0; i < 3 * sets.size(); ++i) states.emplace_back(n);
  for (int step = 1; step <= 10; ++step) {
    auto g = gradient(n, step);
    const AdamWScalars s = scalars_at(step);
    const auto clip = 0.9F, keep = static_cast<float>(1 - s.learning_rate * weight_decay),
               rate = static_cast<float>(s.learning_rate / s.bias_correction1), b1 = static_cast<float>(1 - s.beta1),
               b2 = static_cast<float>(1 - s.beta2), beta2 = static_cast<float>(s.beta2),
               eps = static_cast<float>(s.eps), root = static_cast<float>(s.sqrt_bias_correction2);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const float grad = clip * g[i], p = truth.param[i] * keep;
      truth.m[i] = std::fma(b1, grad - truth.m[i], truth.m[i]);
      truth.v[i] = std::fma(b2, grad * grad, beta2 * truth.v[i]);
      truth.param[i] = std::fma(-rate, truth.m[i] / (std::sqrt(truth.v[i]) / root + eps), p);
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      const Setting setting(static_cast<int>(i % 3) + 1, sets[i / 3]);
      states[i].step(g, s, 0.9, weight_decay);
      ASSERT_EQ(states[i].param, truth.param) << name_of(sets[i / 3]) << " step " << step;
      ASSERT_EQ(states[i].m, truth.m);
      ASSERT_EQ(states[i].v, truth.v);
    }
  }
}

TEST(AdamW, SegmentsAreUpdatedAndNothingElse) {
  const std::int64_t n = 9001;
  const std::vector<UpdateSegment> segments{
      {3, 100, 1, weight_decay}, {100, 101, 1, 0}, {101, 101, 1, 0}, {128, 4300, 1, 0}, {4301, n, 0.5, weight_decay}};
  auto g = gradient(n, 1);
  const AdamWScalars s = scalars_at(1);
  AdamWScalars half = s;
  half.learning_rate *= 0.5;
  State decayed(n), kept(n), slow(n), state(n);
  const State before(n);
  decayed.step(g, s, 0.9, weight_decay);
  kept.step(g, s, 0.9, 0);
  slow.step(g, half, 0.9, weight_decay);
  const Setting setting(3, instruction_sets().back());
  state.step(g, s, 0.9, segments);
  for (std::int64_t at = 0; at < n; ++at) {
    const auto i = static_cast<std::size_t>(at);
    const auto segment =
        std::find_if(segments.begin(), segments.end(), [&](const auto& x) { return x.begin <= at && at < x.end; });
    const State& expected = segment == segments.end()   ? before
                            : segment->lr_factor < 1    ? slow
                            : segment->weight_decay > 0 ? decayed
                                                        : kept;
    ASSERT_EQ(state.param[i], expected.param[i]) << i;
    ASSERT_EQ(state.m[i], expected.m[i]) << i;
    ASSERT_EQ(state.v[i], expected.v[i]) << i;
  }
  for (const auto& wrong : {std::vector<UpdateSegment>{{0, 5}, {4, 9}}, {{5, 4}}, {{-1, 4}}, {{0, n + 1}}})
    EXPECT_THROW(state.step(g, s, 1, wrong), std::logic_error);
}

TEST(AdamW, NotANumberIsNotHidden) {
  State state(9);
  std::vector<float> g(9, std::nanf(""));
  state.step(g, scalars_at(1), 1, weight_decay);
  for (const float p : state.param) EXPECT_TRUE(std::isnan(p));
}

TEST(AdamW, LengthsAreChecked) {
  State state(9);
  std::vector<float> g(8);
  EXPECT_THROW(state.step(g, scalars_at(1), 1, weight_decay), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
