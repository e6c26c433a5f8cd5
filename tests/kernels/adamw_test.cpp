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
  void step(std::vector<float>& grad, const AdamWScalars& scalars, bool decay) {
    const AdamWSegment all{0, static_cast<std::int64_t>(param.size()), decay};
    step(grad, scalars, {&all, 1});
  }
  void step(std::vector<float>& grad, const AdamWScalars& scalars, std::span<const AdamWSegment> segments) {
    adamw({.param = view(param),
           .exp_avg = view(m),
           .exp_avg_sq = view(v),
           .grad = view(grad),
           .scalars = &scalars,
           .segments = segments},
          host_stream);
  }
};

AdamWScalars scalars_at(int step, double clip) {
  AdamWScalars s{.learning_rate = 3e-3, .weight_decay = 0.1, .clip = clip};
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
        const AdamWScalars s = scalars_at(step, 0.7);
        state.step(g, s, decay);
        for (std::size_t i = 0; i < p.size(); ++i) {
          const double grad = 0.7 * static_cast<double>(g[i]);
          if (decay) p[i] *= 1 - s.learning_rate * s.weight_decay;
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
  AdamWScalars s = scalars_at(1, 1);
  s.weight_decay = 0;
  state.step(g, s, true);
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
    const AdamWScalars s = scalars_at(step, 0.9);
    const auto clip = static_cast<float>(s.clip), keep = static_cast<float>(1 - s.learning_rate * s.weight_decay),
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
      states[i].step(g, s, true);
      ASSERT_EQ(states[i].param, truth.param) << name_of(sets[i / 3]) << " step " << step;
      ASSERT_EQ(states[i].m, truth.m);
      ASSERT_EQ(states[i].v, truth.v);
    }
  }
}

TEST(AdamW, SegmentsAreUpdatedAndNothingElse) {
  const std::int64_t n = 9001;
  const std::vector<AdamWSegment> segments{
      {3, 100, true}, {100, 101, false}, {101, 101, true}, {128, 4300, false}, {4301, n, true}};
  auto g = gradient(n, 1);
  const AdamWScalars s = scalars_at(1, 0.9);
  State decayed(n), kept(n), state(n);
  const State before(n);
  decayed.step(g, s, true);
  kept.step(g, s, false);
  const Setting setting(3, instruction_sets().back());
  state.step(g, s, segments);
  for (std::int64_t at = 0; at < n; ++at) {
    const auto i = static_cast<std::size_t>(at);
    const auto segment =
        std::find_if(segments.begin(), segments.end(), [&](const auto& x) { return x.begin <= at && at < x.end; });
    const State& expected = segment == segments.end() ? before : segment->decay ? decayed : kept;
    ASSERT_EQ(state.param[i], expected.param[i]) << i;
    ASSERT_EQ(state.m[i], expected.m[i]) << i;
    ASSERT_EQ(state.v[i], expected.v[i]) << i;
  }
  for (const auto& wrong : {std::vector<AdamWSegment>{{0, 5}, {4, 9}}, {{5, 4}}, {{-1, 4}}, {{0, n + 1}}})
    EXPECT_THROW(state.step(g, s, wrong), std::logic_error);
}

TEST(AdamW, NotANumberIsNotHidden) {
  State state(9);
  std::vector<float> g(9, std::nanf(""));
  state.step(g, scalars_at(1, 1), true);
  for (const float p : state.param) EXPECT_TRUE(std::isnan(p));
}

TEST(AdamW, LengthsAreChecked) {
  State state(9);
  std::vector<float> g(8);
  EXPECT_THROW(state.step(g, scalars_at(1, 1), true), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
