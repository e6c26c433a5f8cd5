// SPDX-License-Identifier: Apache-2.0
// The bigram baseline: entropies that are known, and its probabilities against a direct count.

#include "jobs/cli/session/bigram.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::jobs {
namespace {

class Ids final : public io::TokenStream {
 public:
  explicit Ids(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {}
  Ids(std::int64_t count, const std::function<std::int32_t(std::int64_t)>& id) {
    for (std::int64_t i = 0; i < count; ++i) ids_.push_back(id(i));
  }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    if (first < 0 || count < 0 || first + count > size()) throw std::logic_error("beyond the stream");
    std::copy_n(ids_.begin() + first, count, out);
  }
  [[nodiscard]] const std::vector<std::int32_t>& ids() const { return ids_; }

 private:
  std::vector<std::int32_t> ids_;
};

TEST(Bigram, ACycleIsLearntUpToItsSmoothing) {
  const Ids train(10000, [](auto i) { return static_cast<std::int32_t>(i % 7); });
  const auto result = bigram_loss(train, train, 7);
  EXPECT_LT(result.loss, 1e-4);
  EXPECT_GT(result.loss, 0);
}

TEST(Bigram, UniformNoiseCostsLogV) {
  const auto noise = [](std::uint64_t key) {
    return
        [key](std::int64_t i) { return static_cast<std::int32_t>(philox(key, static_cast<std::uint64_t>(i))[0] % 16); };
  };
  const Ids train(200000, noise(1)), validation(50000, noise(2));
  EXPECT_NEAR(bigram_loss(train, validation, 16).loss, std::log(16.0), 2e-3);
}

TEST(Bigram, AMarkovChainCostsItsEntropyRate) {
  // From any state: on with probability 3/4, stay with 1/4.
  const auto chain = [](std::uint64_t key, std::int64_t count) {
    std::vector<std::int32_t> ids = {0};
    for (std::int64_t i = 1; i < count; ++i)
      ids.push_back((ids.back() + (philox(key, static_cast<std::uint64_t>(i))[0] % 4 != 0 ? 1 : 0)) % 5);
    return Ids(std::move(ids));
  };
  const auto result = bigram_loss(chain(1, 200000), chain(2, 200000), 5);
  EXPECT_NEAR(result.loss, -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 5e-3);
  EXPECT_EQ(result.lambda, 1.0);
}

TEST(Bigram, TheLossIsThatOfTheFormula) {
  // Longer than one piece of reading, so that pairs across pieces count.
  const auto skewed = [](std::uint64_t key) {
    return [key](std::int64_t i) {
      const auto w = philox(key, static_cast<std::uint64_t>(i));
      return static_cast<std::int32_t>(std::min(w[0] % 11, w[1] % 11));
    };
  };
  const Ids train(140000, skewed(1)), validation(70001, skewed(2));
  const auto result = bigram_loss(train, validation, 11);
  std::vector<std::vector<double>> pairs(11, std::vector<double>(11));
  std::vector<double> firsts(11), seconds(11);
  const auto& t = train.ids();
  for (std::size_t i = 0; i + 1 < t.size(); ++i) {
    const auto a = static_cast<std::size_t>(t[i]), b = static_cast<std::size_t>(t[i + 1]);
    ++pairs[a][b];
    ++firsts[a];
    ++seconds[b];
  }
  double loss = 0;
  const auto& v = validation.ids();
  for (std::size_t i = 0; i + 1 < v.size(); ++i) {
    const auto a = static_cast<std::size_t>(v[i]), b = static_cast<std::size_t>(v[i + 1]);
    const double p = result.lambda * (pairs[a][b] + result.k) / (firsts[a] + result.k * 11) +
                     (1 - result.lambda) * seconds[b] / static_cast<double>(t.size() - 1);
    loss -= std::log(p);
  }
  EXPECT_NEAR(result.loss, loss / static_cast<double>(v.size() - 1), 1e-9);
}

TEST(Bigram, SmoothingIsTunedOnTheTrainingStreamAlone) {
  const Ids train(5000,
                  [](auto i) { return static_cast<std::int32_t>(philox(3, static_cast<std::uint64_t>(i))[0] % 50); });
  const Ids easy(100, [](auto) { return 1; }), other(100, [](auto i) { return static_cast<std::int32_t>(i % 50); });
  const auto one = bigram_loss(train, easy, 50), two = bigram_loss(train, other, 50);
  EXPECT_EQ(one.k, two.k);
  EXPECT_EQ(one.lambda, two.lambda);
  EXPECT_TRUE(std::isfinite(one.loss) && std::isfinite(two.loss));
}

TEST(Bigram, UnsupportedInputIsRefused) {
  const Ids train(100, [](auto i) { return static_cast<std::int32_t>(i % 7); }), one({3});
  const auto refused = [](ExitCode code, const std::function<void()>& action) {
    try {
      action();
      ADD_FAILURE();
    } catch (const Error& error) { EXPECT_EQ(error.code(), code) << error.line(); }
  };
  refused(ExitCode::usage, [&] { (void)bigram_loss(train, train, 4097); });
  refused(ExitCode::data, [&] { (void)bigram_loss(train, one, 7); });
  refused(ExitCode::data, [&] { (void)bigram_loss(one, train, 7); });
}

}  // namespace
}  // namespace tessera::jobs
