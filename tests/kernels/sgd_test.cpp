// SPDX-License-Identifier: Apache-2.0
// SGD: PyTorch's algorithm in double over many steps; the documented sequence to the bit on every instruction set and
// number of threads.
#include "kernels/sgd.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr double rate = 3e-3, sgd_decay = 0.1;

struct SgdState {
  std::vector<float> param, buffer;
  explicit SgdState(std::int64_t n) : param(random_vector<float>(n, 1)), buffer(static_cast<std::size_t>(n)) {}
  void step(std::vector<float>& grad, const SgdScalars& scalars, double clip, std::span<const UpdateSegment> segments) {
    const UpdateDecision decision{.clip = clip};
    sgd({.update = {.param = view(param), .grad = view(grad), .decision = &decision, .segments = segments},
         .momentum_buffer = scalars.momentum > 0 ? view(buffer) : TensorView{},
         .scalars = &scalars},
        host_stream);
  }
  void step(std::vector<float>& grad, const SgdScalars& scalars, double clip) {
    const UpdateSegment all{.begin = 0, .end = static_cast<std::int64_t>(param.size()), .weight_decay = sgd_decay};
    step(grad, scalars, clip, {&all, 1});
  }
};

std::vector<float> sgd_gradient(std::int64_t n, int step) {
  return random_vector<float>(n, static_cast<std::uint64_t>(100 + step), 0.1);
}

std::vector<SgdScalars> sgd_variants() { return {{rate, 0, 0}, {rate, 0.9, 0}, {rate, 0.9, 1}}; }

TEST(Sgd, MatchesPyTorchsAlgorithm) {
  for (const Isa set : instruction_sets())
    for (const SgdScalars& s : sgd_variants()) {
      const Setting setting(1, set);
      const std::int64_t n = 301;
      SgdState state(n);
      std::vector<double> p(state.param.begin(), state.param.end()), buffer(p.size());
      for (int step = 1; step <= 20; ++step) {
        auto g = sgd_gradient(n, step);
        state.step(g, s, 0.7);
        for (std::size_t i = 0; i < p.size(); ++i) {
          double d = 0.7 * static_cast<double>(g[i]) + sgd_decay * p[i];
          if (s.momentum > 0) {
            buffer[i] = step == 1 ? d : s.momentum * buffer[i] + d;
            d = s.nesterov != 0 ? d + s.momentum * buffer[i] : buffer[i];
          }
          p[i] -= s.learning_rate * d;
          EXPECT_NEAR(static_cast<double>(state.param[i]), p[i], 2e-7 * step * (1 + std::abs(p[i])))
              << i << " step " << step;
        }
      }
    }
}

TEST(Sgd, TheWrittenSequenceToTheBit) {
  const std::int64_t n = 1003;
  for (const SgdScalars& s : sgd_variants()) {
    SgdState truth(n);
    std::vector<SgdState> states;
    const auto sets = instruction_sets();
    for (std::size_t i = 0; i < 3 * sets.size(); ++i) states.emplace_back(n);
    for (int step = 1; step <= 5; ++step) {
      auto g = sgd_gradient(n, step);
      const auto lr = static_cast<float>(s.learning_rate), momentum = static_cast<float>(s.momentum),
                 decay = static_cast<float>(sgd_decay);
      for (std::size_t i = 0; i < g.size(); ++i) {
        const float grad = std::fma(decay, truth.param[i], 0.9F * g[i]);
        float direction = grad;
        if (s.momentum > 0) {
          truth.buffer[i] = std::fma(momentum, truth.buffer[i], grad);
          direction = s.nesterov != 0 ? std::fma(momentum, truth.buffer[i], grad) : truth.buffer[i];
        }
        truth.param[i] = std::fma(-lr, direction, truth.param[i]);
      }
      for (std::size_t i = 0; i < states.size(); ++i) {
        const Setting setting(static_cast<int>(i % 3) + 1, sets[i / 3]);
        states[i].step(g, s, 0.9);
        ASSERT_EQ(states[i].param, truth.param) << name_of(sets[i / 3]) << " step " << step;
        ASSERT_EQ(states[i].buffer, truth.buffer);
      }
    }
  }
}

TEST(Sgd, SegmentsAreUpdatedAndNothingElse) {
  const std::int64_t n = 9001;
  const SgdScalars s{rate, 0.9, 1};
  const std::vector<UpdateSegment> segments{{3, 100, 1, sgd_decay}, {128, 4300, 0.5, 0}};
  const UpdateSegment decayed_all{0, n, 1, sgd_decay}, slow_all{0, n, 0.5, 0};
  auto g = sgd_gradient(n, 1);
  SgdState decayed(n), slow(n), state(n);
  const SgdState before(n);
  decayed.step(g, s, 1, {&decayed_all, 1});
  slow.step(g, s, 1, {&slow_all, 1});
  state.step(g, s, 1, segments);
  for (std::int64_t at = 0; at < n; ++at) {
    const auto i = static_cast<std::size_t>(at);
    const SgdState& expected = at >= 3 && at < 100 ? decayed : at >= 128 && at < 4300 ? slow : before;
    ASSERT_EQ(state.param[i], expected.param[i]) << i;
    ASSERT_EQ(state.buffer[i], expected.buffer[i]) << i;
  }
}

TEST(Sgd, LengthsAreChecked) {
  SgdState state(9);
  std::vector<float> g(8);
  EXPECT_THROW(state.step(g, {rate, 0.9, 0}, 1), std::logic_error);
  g.resize(9);
  state.buffer.resize(8);
  EXPECT_THROW(state.step(g, {rate, 0.9, 0}, 1), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
