// SPDX-License-Identifier: Apache-2.0
// Embedding and linear_cross_entropy of parts of a vocabulary give together what they give of all of it.

#include "kernels/embedding.hpp"
#include "linear_cross_entropy_reference.hpp"
#include "runtime/base/tensor_placement.hpp"

namespace tessera::kernels {
namespace {

struct PartsProblem {
  Case size;
  int parts;
  LogitRules logits = {};
  std::int64_t rank = 0;  // of an adapter
};

template <class T>
struct Problem {
  explicit Problem(const PartsProblem& of)
      : s(of.size),
        x(random_vector<T>(s.n * s.c, 22)),
        w(random_vector<T>(s.v * s.c, 23, 0.5)),
        low_x(random_vector<T>(s.n * of.rank, 24)),
        low_w(random_vector<T>(s.v * of.rank, 25, 0.5)),
        targets(random_targets(s, 2)),
        dx(x.size()),
        dw(w.size()),
        low_dx(low_x.size()),
        low_dw(low_w.size()),
        rules(of.logits),
        rank(of.rank) {
    for (std::int64_t i = 0; i < s.n; ++i) weights.push_back(0.25F * static_cast<float>(i % 5));
  }
  /// Of rows [first, first + count) of the weight, with gradients into dx_out and dw.
  [[nodiscard]] LinearCrossEntropyArgs args(ElementRun rows, Workspace& workspace) {
    LinearCrossEntropyArgs of{.x = view(x, {s.n, s.c}),
                              .weight = view(w, {s.v, s.c}).rows(rows.first, rows.length),
                              .targets = view(targets),
                              .logits = rules,
                              .workspace = workspace.view()};
    if (rank > 0)
      of.low = {
          .x = view(low_x, {s.n, rank}), .weight = view(low_w, {s.v, rank}).rows(rows.first, rows.length), .alpha = 2};
    return of;
  }
  void want_gradients(LinearCrossEntropyArgs& of, ElementRun rows) {
    of.dx = view(dx, {s.n, s.c});
    of.dweight = view(dw, {s.v, s.c}).rows(rows.first, rows.length);
    if (rank == 0) return;
    of.low.dx = view(low_dx, {s.n, rank});
    of.low.dweight = view(low_dw, {s.v, rank}).rows(rows.first, rows.length);
  }

  Case s;
  std::vector<T> x, w, low_x, low_w;
  Targets targets;
  Weights weights;
  std::vector<T> dx, dw, low_dx, low_dw;
  LogitRules rules;
  std::int64_t rank;
  double scale = 1.0 / 7;
};

template <class T>
std::vector<double> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

template <class T>
void parts_are_the_whole(const PartsProblem& of, double tolerance) {
  const Case& s = of.size;
  SCOPED_TRACE(testing::Message() << "N " << s.n << " C " << s.c << " V " << s.v << " in " << of.parts);
  Problem<T> whole(of), split(of);
  Workspace workspace(linear_cross_entropy_workspace(s.n, s.v, dtype_of<T>::value));
  LossSums one, all, evaluated;
  LinearCrossEntropyArgs args = whole.args({0, s.v}, workspace);
  whole.want_gradients(args, {0, s.v});
  args.weights = view(whole.weights);
  args.sums = &one;
  args.loss_scale = &whole.scale;
  linear_cross_entropy(args, host_stream);

  std::vector<double> statistics(static_cast<std::size_t>(4 * s.n * of.parts), -1), merged(statistics.size(), -1);
  const TensorView of_parts = view(statistics, {of.parts, s.n, 4});
  const auto part_of = [&](int part, bool gradients) {
    const ElementRun rows = even_part(s.v, of.parts, part);
    Workspace own(linear_cross_entropy_workspace(s.n, rows.length, dtype_of<T>::value));
    LinearCrossEntropyArgs of_part = split.args(rows, own);
    of_part.part.first = rows.first;
    of_part.part.vocab = s.v;
    if (gradients) split.want_gradients(of_part, rows), of_part.part.merged = {merged.data(), {s.n, 4}};
    else of_part.part.statistics = of_parts.rows(part, 1).reshape({s.n, 4});
    linear_cross_entropy(of_part, host_stream);
    EXPECT_TRUE(own.intact());
  };
  for (int part = 0; part < of.parts; ++part) part_of(part, false);
  MergeTokenStatisticsArgs merge{
      .parts = of_parts, .targets = view(split.targets), .weights = view(split.weights), .sums = &all};
  merge_token_statistics(merge, host_stream);
  merge.sums = &evaluated;
  merge.loss_scale = &split.scale;
  merge.merged = {merged.data(), {s.n, 4}};
  merge_token_statistics(merge, host_stream);
  EXPECT_EQ(all.loss.value(), evaluated.loss.value());
  EXPECT_NEAR(all.loss.value(), one.loss.value(), tolerance * (1 + one.loss.value()));
  EXPECT_EQ(all.tokens, one.tokens);
  EXPECT_EQ(all.correct, one.correct);

  std::vector<double> dx(split.dx.size()), low_dx(split.low_dx.size());
  for (int part = 0; part < of.parts; ++part) {
    part_of(part, true);
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += static_cast<double>(split.dx[i]);
    for (std::size_t i = 0; i < low_dx.size(); ++i) low_dx[i] += static_cast<double>(split.low_dx[i]);
  }
  EXPECT_LT(relative_error(dx, widened(whole.dx)), tolerance);
  EXPECT_LT(relative_error(split.dw, widened(whole.dw)), tolerance);
  if (of.rank == 0) return;
  EXPECT_LT(relative_error(low_dx, widened(whole.low_dx)), tolerance);
  EXPECT_LT(relative_error(split.low_dw, widened(whole.low_dw)), tolerance);
}

TEST(VocabularyParts, LossAndGradientsAreThoseOfTheWhole) {
  for (const Isa set : instruction_sets()) {
    SCOPED_TRACE(name_of(set));
    const Setting setting(2, set);
    for (const PartsProblem& of : {PartsProblem{{13, 24, 67}, 2},
                                   {{13, 24, 67}, 4},
                                   {{37, 16, 4099}, 3},
                                   {{1100, 3, 31}, 2},
                                   {{5, 4, 3}, 3},
                                   {{13, 24, 67}, 3, {1.7, 2.5}},
                                   {{13, 24, 67}, 3, {0.3, 0}, 3}}) {
      parts_are_the_whole<float>(of, 5e-6);
      parts_are_the_whole<double>(of, 1e-13);
    }
  }
}

/// Equal logits in two parts: the first of them is the choice.
TEST(VocabularyParts, TheFirstOfEqualLogitsIsTheChoice) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> parts = {2, 1, 2,    1, 2, 1, -inf, 0,   // part 0: token 0 has its target here, token 1 not
                               2, 1, -inf, 0, 2, 1, 2,    1};  // part 1
  Targets targets = {0, 5};
  LossSums sums;
  merge_token_statistics({.parts = view(parts, {2, 2, 4}), .targets = view(targets), .sums = &sums}, host_stream);
  EXPECT_EQ(sums.tokens, 2);
  EXPECT_EQ(sums.correct, 1);
  EXPECT_NEAR(sums.loss.value(), 2 * std::log(2.0), 1e-12);
}

TEST(VocabularyParts, LookupsAddUpToThoseOfTheWhole) {
  constexpr std::int64_t tokens = 29, vocab = 11, channels = 5;
  auto table = random_vector<float>(vocab * channels, 1), positions = random_vector<float>(tokens * channels, 2),
       dy = random_vector<float>(tokens * channels, 3);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i)
    ids.push_back(static_cast<std::int32_t>(philox(4, static_cast<std::uint64_t>(i))[0] % vocab));
  const auto rows_of = [&](std::vector<float>& of) { return view(of, {1, tokens, channels}); };
  std::vector<float> y(dy.size()), dtable(table.size());
  embedding_forward({.ids = view(ids, {1, tokens}),
                     .tokens_table = view(table, {vocab, channels}),
                     .positions_table = view(positions, {tokens, channels}),
                     .y = rows_of(y)},
                    host_stream);
  embedding_backward(
      {.ids = view(ids, {1, tokens}), .dy = rows_of(dy), .dtokens_table = view(dtable, {vocab, channels})},
      host_stream);
  for (const int parts : {2, 3}) {
    std::vector<float> sum(y.size()), part(y.size()), dparts(table.size(), 7);
    for (int rank = 0; rank < parts; ++rank) {
      const ElementRun rows = even_part(vocab, parts, rank);
      embedding_forward({.ids = view(ids, {1, tokens}),
                         .tokens_table = view(table, {vocab, channels}).rows(rows.first, rows.length),
                         .positions_table = view(positions, {tokens, channels}),
                         .y = rows_of(part),
                         .first_id = rows.first},
                        host_stream);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      embedding_backward({.ids = view(ids, {1, tokens}),
                          .dy = rows_of(dy),
                          .dtokens_table = view(dparts, {vocab, channels}).rows(rows.first, rows.length),
                          .first_id = rows.first,
                          .num_ids = vocab},
                         host_stream);
    }
    EXPECT_EQ(sum, y);
    EXPECT_EQ(dparts, dtable);
  }
}

}  // namespace
}  // namespace tessera::kernels
