// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/bigram.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

constexpr std::int64_t largest_vocab = 4096;
constexpr double grid_k[] = {1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0};
constexpr double grid_lambda[] = {0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0};

/// n(a, b), n(a) as a first token, n(b) as a second one.
struct Counts {
  explicit Counts(std::int64_t vocab_)
      : vocab(static_cast<std::size_t>(vocab_)), pairs(vocab * vocab), firsts(vocab), seconds(vocab) {}
  void add(const Counts& other) {
    const auto sum = [](std::vector<std::int64_t>& to, const std::vector<std::int64_t>& from) {
      std::transform(to.begin(), to.end(), from.begin(), to.begin(), [](auto x, auto y) { return x + y; });
    };
    sum(pairs, other.pairs);
    sum(firsts, other.firsts);
    sum(seconds, other.seconds);
    total += other.total;
  }
  std::size_t vocab;
  std::vector<std::int64_t> pairs, firsts, seconds;
  std::int64_t total = 0;
};

/// The pairs whose second token is in [first, last) of the stream, first ≥ 1.
Counts count(const io::TokenStream& stream, std::int64_t first, std::int64_t last, std::int64_t vocab) {
  Counts counts(vocab);
  constexpr std::int64_t block = 1 << 16;
  std::vector<std::int32_t> ids(block + 1);
  for (std::int64_t at = first; at < last; at += block) {
    const std::int64_t n = std::min(block, last - at);
    stream.read(at - 1, n + 1, ids.data());
    for (std::int64_t i = 0; i < n; ++i) {
      const auto a = static_cast<std::size_t>(ids[static_cast<std::size_t>(i)]);
      const auto b = static_cast<std::size_t>(ids[static_cast<std::size_t>(i) + 1]);
      ++counts.pairs[a * counts.vocab + b];
      ++counts.firsts[a];
      ++counts.seconds[b];
    }
  }
  counts.total = last - first;
  return counts;
}

/// Mean loss of the model made of `fit` on the pairs of `held`.
double loss_of(const Counts& fit, const Counts& held, double k, double lambda) {
  const auto vocab = static_cast<double>(fit.vocab);
  double sum = 0;
  for (std::size_t a = 0; a < fit.vocab; ++a) {
    if (held.firsts[a] == 0) continue;
    const double weight = lambda / (static_cast<double>(fit.firsts[a]) + k * vocab);
    for (std::size_t b = 0; b < fit.vocab; ++b) {
      const std::int64_t times = held.pairs[a * fit.vocab + b];
      if (times == 0) continue;
      const double pair = weight * (static_cast<double>(fit.pairs[a * fit.vocab + b]) + k);
      const double single = (1 - lambda) * static_cast<double>(fit.seconds[b]) / static_cast<double>(fit.total);
      sum -= static_cast<double>(times) * std::log(pair + single);
    }
  }
  return sum / static_cast<double>(held.total);
}

}  // namespace

BigramResult bigram_loss(const io::TokenStream& train, const io::TokenStream& validation, std::int64_t vocab) {
  if (vocab < 1 || vocab > largest_vocab)
    throw Error(ExitCode::usage, strfmt("a bigram table for a vocabulary of %ld is too large", vocab), {},
                strfmt("Use --baseline bigram with a vocabulary of at most %ld", largest_vocab));
  if (train.size() < 20 || validation.size() < 2)
    throw Error(ExitCode::data, "too few tokens for --baseline bigram", {},
                "Give at least 20 for training and 2 for validation");
  const std::int64_t held_out = train.size() - train.size() / 10;
  Counts fit = count(train, 1, held_out, vocab);
  const Counts held = count(train, held_out, train.size(), vocab);
  BigramResult best;
  double best_loss = 0;
  for (const double k : grid_k)
    for (const double lambda : grid_lambda) {
      const double loss = loss_of(fit, held, k, lambda);
      if (best.k != 0 && loss >= best_loss) continue;
      best_loss = loss;
      best.k = k;
      best.lambda = lambda;
    }
  fit.add(held);
  best.loss = loss_of(fit, count(validation, 1, validation.size(), vocab), best.k, best.lambda);
  return best;
}

}  // namespace tessera::jobs
