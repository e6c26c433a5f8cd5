// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy with a product of low rank beside the weight, as an adapter of a head adds.

#include "linear_cross_entropy_reference.hpp"

namespace tessera::kernels {
namespace {

/// The last `rank` columns of x and W as a product of low rank, with half of W's values and alpha 2.
template <class T>
void expect_low_rank_as_columns(const Case& s, std::int64_t rank, bool accumulate, double tolerance) {
  SCOPED_TRACE(testing::Message() << "N " << s.n << " C " << s.c << " V " << s.v << " R " << rank);
  const auto x = random_vector<T>(s.n * s.c, 22), w = random_vector<T>(s.v * s.c, 23, 0.5);
  auto targets = random_targets(s, 2);
  const double scale = 1.0 / 7;
  const LogitRules rules = accumulate ? LogitRules{1.3, 2.0} : LogitRules{};
  const auto expected = reference(s, Vector(x.begin(), x.end()), Vector(w.begin(), w.end()), targets, scale, {}, rules);
  const std::int64_t left = s.c - rank;
  const auto columns_of = [&](const auto& all, std::int64_t first, std::int64_t count, double factor) {
    std::vector<T> part;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (const auto c = static_cast<std::int64_t>(i) % s.c; c >= first && c < first + count)
        part.push_back(static_cast<T>(factor * static_cast<double>(all[i])));
    return part;
  };
  auto x1 = columns_of(x, 0, left, 1), x2 = columns_of(x, left, rank, 1), w1 = columns_of(w, 0, left, 1),
       w2 = columns_of(w, left, rank, 0.5);
  std::vector<T> dx1(x1.size()), dx2(x2.size()), dw1(w1.size(), 1), dw2(w2.size(), 1);
  LossSums sums, evaluated;
  Workspace workspace(linear_cross_entropy_workspace(s.n, s.v, dtype_of<T>::value));
  LinearCrossEntropyArgs args{.x = view(x1, {s.n, left}),
                              .weight = view(w1, {s.v, left}),
                              .targets = view(targets),
                              .logits = rules,
                              .sums = &evaluated,
                              .workspace = workspace.view()};
  args.low = {.x = view(x2, {s.n, rank}), .weight = view(w2, {s.v, rank}), .alpha = 2};
  linear_cross_entropy(args, host_stream);
  args.sums = &sums;
  args.loss_scale = &scale;
  args.dx = view(dx1, {s.n, left});
  args.dweight = view(dw1, {s.v, left});
  args.accumulate = args.low.accumulate = accumulate;
  args.low.dx = view(dx2, {s.n, rank});
  args.low.dweight = view(dw2, {s.v, rank});
  linear_cross_entropy(args, host_stream);
  EXPECT_NEAR(sums.loss.value(), expected.loss, tolerance * (1 + expected.loss));
  EXPECT_EQ(sums.loss.value(), evaluated.loss.value());
  for (auto* dw : {&dw1, &dw2})
    for (T& d : *dw) d -= accumulate ? T(1) : T(0);
  const auto wide = [&](const Vector& all, std::int64_t first, std::int64_t count, double factor) {
    const auto part = columns_of(all, first, count, factor);
    return Vector(part.begin(), part.end());
  };
  EXPECT_LT(relative_error(dx1, wide(expected.dx, 0, left, 1)), tolerance);
  EXPECT_LT(relative_error(dx2, wide(expected.dx, left, rank, 1)), tolerance);
  EXPECT_LT(relative_error(dw1, wide(expected.dweight, 0, left, 1)), tolerance);
  EXPECT_LT(relative_error(dw2, wide(expected.dweight, left, rank, 2)), tolerance);
  // The low rank alone, as with a frozen head; the same bits.
  std::vector<T> alone(w2.size(), 1);
  args.dx = args.dweight = args.low.dx = {};
  args.low.dweight = view(alone, {s.v, rank});
  linear_cross_entropy(args, host_stream);
  for (T& d : alone) d -= accumulate ? T(1) : T(0);
  EXPECT_EQ(alone, dw2);
  EXPECT_TRUE(workspace.intact());
}

TEST(LinearCrossEntropyLowRank, EqualsColumnsOfTheWeight) {
  for (const Case& s : {Case{13, 24, 67}, Case{37, 16, 2049}, Case{2100, 5, 31}})
    for (const bool accumulate : {false, true}) {
      expect_low_rank_as_columns<float>(s, 3, accumulate, 2e-5);
      expect_low_rank_as_columns<double>(s, 3, accumulate, 1e-12);
    }
}

}  // namespace
}  // namespace tessera::kernels
