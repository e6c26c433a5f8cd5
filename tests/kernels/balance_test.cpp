// SPDX-License-Identifier: Apache-2.0
// The balance loss and its accumulated sums, computed by hand; padding is never counted.
#include "kernels/balance.hpp"

#include "kernels/moe.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

/// Two rows of four tokens, K = 1: three documents, and a token of padding at the end of the first row.
struct Packed {
  std::vector<std::int32_t> positions = {0, 1, 0, 0, 0, 1, 2, 3},
                            targets = {5, ignore_index, 7, ignore_index, 1, 2, 3, ignore_index};
  TokenFields fields{view(positions, {2, 4}), view(targets, {2, 4})};
};

TEST(Padding, IsADocumentOfOneTokenWithoutATarget) {
  const Packed packed;
  const PaddingMap map = padding_of(packed.fields);
  for (std::int64_t t = 0; t < 8; ++t) EXPECT_EQ(map.has(t), t == 3) << t;  // token 2 is alone too, but has a target
  for (std::int64_t t = 0; t < 8; ++t)
    EXPECT_FALSE(padding_of({.positions = {}, .targets = packed.fields.targets}).has(t));
}

/// Of a row of eight that ranks share, each with two ranges of two: a document of several tokens that crosses the
/// border of a part is no padding, though its first token has no target.
TEST(Padding, IsToldByThePositionsOfWholeRows) {
  std::vector<std::int32_t> positions = {0, 0, 1, 2, 0, 0, 0, 1}, targets = {ignore_index, ignore_index, 1, 2};
  const auto has = [&](std::array<std::int64_t, 2> begins, std::int64_t t) {
    return padding_of({view(positions, {1, 8}), view(targets, {1, 4}), begins}).has(t);
  };
  EXPECT_TRUE(has({0, 6}, 0));
  EXPECT_FALSE(has({0, 6}, 1)) << "its document goes on in another part";
  EXPECT_FALSE(has({0, 6}, 2));
  EXPECT_TRUE(has({4, 2}, 0) && has({4, 2}, 1));
  EXPECT_FALSE(has({4, 2}, 2));
  std::vector<std::int32_t> two_rows = positions;
  two_rows.insert(two_rows.end(), {0, 1, 0, 0, 0, 1, 2, 3});
  std::vector<std::int32_t> none(8, ignore_index);
  const PaddingMap map = padding_of({view(two_rows, {2, 8}), view(none, {2, 4}), {2, 4}});
  for (std::int64_t t = 0; t < 8; ++t) EXPECT_EQ(map.has(t), t == 2 || t == 3 || t == 4 || t == 5) << t;
}

TEST(Padding, IsRoutedAndNotCounted) {
  Packed packed;
  const std::int64_t n = 8, e = 5, k = 2;
  auto logits = random_vector<double>(n * e, 1);
  std::vector<double> probs(logits.size()), weights(n * k), counts(e), sums(e), alone(e), sums_alone(e),
      dlogits(logits.size(), 7.0);
  std::vector<std::int32_t> experts(n * k);
  const auto choose = [&](std::vector<double>& to_counts, std::vector<double>& to_sums, const TokenFields& fields) {
    route({.logits = view(logits, {n, e}),
           .probs = view(probs, {n, e}),
           .experts = view(experts, {n, k}),
           .weights = view(weights, {n, k}),
           .counts = view(to_counts),
           .sums = view(to_sums),
           .fields = fields},
          host_stream);
  };
  choose(counts, sums, {});
  choose(alone, sums_alone, packed.fields);
  for (std::int64_t i = 0; i < k; ++i)
    alone[static_cast<std::size_t>(experts[static_cast<std::size_t>(3 * k + i)])] += 1;
  EXPECT_EQ(alone, counts);
  for (std::size_t i = 0; i < sums.size(); ++i)
    EXPECT_NEAR(sums_alone[i] + probs[static_cast<std::size_t>(3 * e) + i], sums[i], 1e-14);
  auto dweights = random_vector<double>(n * k, 2), balance = random_vector<double>(e, 3);
  route_backward({.dweights = view(dweights, {n, k}),
                  .probs = view(probs, {n, e}),
                  .experts = view(experts, {n, k}),
                  .weights = view(weights, {n, k}),
                  .balance = view(balance),
                  .fields = packed.fields,
                  .dlogits = view(dlogits, {n, e})},
                 host_stream);
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t i = t * e; i < (t + 1) * e; ++i)
      EXPECT_EQ(dlogits[static_cast<std::size_t>(i)] == 0, t == 3) << t;
}

TEST(Balance, LossesGradientAndWeightByHand) {
  Packed packed;  // 7 tokens are routed, 5 have targets
  const std::int64_t layers = 2, e = 3;
  std::vector<double> router = {3, 4, 0, 2.5, 3.5, 1,  // choices, probabilities of the first layer
                                7, 0, 0, 4,   2,   1};
  const TensorView table = view(router, {layers, 2, e});
  const double first = 3 * (3 * 2.5 + 4 * 3.5) / 49, second = 3 * (7 * 4) / 49.0,
               all = 3 * (10 * 6.5 + 4 * 5.5) / (14 * 14);
  EXPECT_NEAR(balance_loss(table, 7, 0), first, 1e-15);
  EXPECT_NEAR(balance_loss(table, 7, 1), second, 1e-15);
  EXPECT_NEAR(balance_loss(table, 7, -1), all, 1e-15);

  const double loss_scale = 8.0 / 50, gradient_scale = 8, unit = 0x1p-36;
  const BalanceArgs of{table, packed.fields, &loss_scale};
  std::vector<std::int64_t> sums = {0, 100, 0};
  add_balance_losses({.of = of, .gradient_scale = &gradient_scale, .unit = unit, .sums = sums.data()}, host_stream);
  EXPECT_NEAR(static_cast<double>(sums[0]) * unit, all * 5 / 50, unit);
  EXPECT_NEAR(static_cast<double>(sums[1] - 100) * unit, first * 5 / 50, unit);
  EXPECT_NEAR(static_cast<double>(sums[2]) * unit, second * 5 / 50, unit);

  std::vector<double> slopes(e);
  balance_gradient({.of = of, .coefficient = 0.5, .out = view(slopes)}, host_stream);
  const double factor = 0.5 * 5 * loss_scale * 3 / (14 * 14);
  EXPECT_LE(relative_error(slopes, std::vector<double>{factor * 10, factor * 4, 0}), 1e-15);

  // Of two ranks that share the micro-batch: the same from what each has counted.
  std::vector<double> counted = {7, 5}, parts = {3, 2, 4, 3}, sum(2);
  sum_statistics({.parts = view(parts, {2, 2}), .sum = view(sum)}, host_stream);
  EXPECT_EQ(sum, counted);
  count_tokens({.fields = packed.fields, .out = view(sum)}, host_stream);
  EXPECT_EQ(sum, counted);
  BalanceArgs shared{table, {.positions = {}, .targets = view(packed.targets, {2, 4})}, &loss_scale};
  shared.counted = view(counted);
  std::vector<std::int64_t> same = {0, 100, 0};
  add_balance_losses({.of = shared, .gradient_scale = &gradient_scale, .unit = unit, .sums = same.data()}, host_stream);
  EXPECT_EQ(same, sums);
  std::vector<double> slopes_of_shared(e);
  balance_gradient({.of = shared, .coefficient = 0.5, .out = view(slopes_of_shared)}, host_stream);
  EXPECT_EQ(slopes_of_shared, slopes);

  // Of a loss over samples: three of 50.
  BalanceArgs samples = of;
  samples.samples = 3;
  sums = {0, 0, 0};
  add_balance_losses({.of = samples, .gradient_scale = &gradient_scale, .unit = unit, .sums = sums.data()},
                     host_stream);
  EXPECT_NEAR(static_cast<double>(sums[0]) * unit, all * 3 / 50, unit);
  balance_gradient({.of = samples, .coefficient = 0.5, .out = view(slopes)}, host_stream);
  EXPECT_LE(relative_error(slopes, std::vector<double>{factor * 6, factor * 2.4, 0}), 1e-15);
}

}  // namespace
}  // namespace tessera::kernels
