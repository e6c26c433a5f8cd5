// SPDX-License-Identifier: Apache-2.0
// Embedding against loops; gradients of repeated tokens; absent positions; tables longer than the sequence; threads.
#include "kernels/embedding.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

struct Problem {
  std::int64_t batch = 3, tokens = 11, vocab = 7, positions = 13, channels = 37;
  std::vector<std::int32_t> ids;
  std::vector<double> table, position_table, dy;

  Problem()
      : table(random_vector<double>(vocab * channels, 1)),
        position_table(random_vector<double>(positions * channels, 2)),
        dy(random_vector<double>(batch * tokens * channels, 3)) {
    for (std::int64_t i = 0; i < batch * tokens; ++i)
      ids.push_back(static_cast<std::int32_t>(philox(4, static_cast<std::uint64_t>(i))[0] % 6));  // 6 is never used
  }
  [[nodiscard]] Shape id_shape() const { return {batch, tokens}; }
  [[nodiscard]] Shape y_shape() const { return {batch, tokens, channels}; }

  template <class F>
  void each(const F& f) const {  // f(element of y, element of table, element of positions)
    for (std::int64_t i = 0; i < batch * tokens; ++i)
      for (std::int64_t c = 0; c < channels; ++c)
        f(static_cast<std::size_t>(i * channels + c),
          static_cast<std::size_t>(ids[static_cast<std::size_t>(i)] * channels + c),
          static_cast<std::size_t>(i % tokens * channels + c));
  }
};

TEST(Embedding, Forward) {
  for (const Isa set : instruction_sets())
    for (const int num : {1, 2, 3}) {
      const Setting setting(num, set);
      Problem p;
      std::vector<double> y(p.dy.size());
      embedding_forward({.ids = view(p.ids, p.id_shape()),
                         .tokens_table = view(p.table, {p.vocab, p.channels}),
                         .positions_table = view(p.position_table, {p.positions, p.channels}),
                         .y = view(y, p.y_shape())},
                        host_stream);
      p.each([&](std::size_t at, std::size_t token, std::size_t position) {
        EXPECT_EQ(y[at], p.table[token] + p.position_table[position]);
      });
      embedding_forward({.ids = view(p.ids, p.id_shape()),
                         .tokens_table = view(p.table, {p.vocab, p.channels}),
                         .y = view(y, p.y_shape())},
                        host_stream);
      p.each([&](std::size_t at, std::size_t token, std::size_t) { EXPECT_EQ(y[at], p.table[token]); });
    }
}

TEST(Embedding, BackwardIsTheTransposeInTokenOrder) {
  for (const Isa set : instruction_sets())
    for (const int num : {1, 2, 3})
      for (const bool accumulate : {false, true}) {
        const Setting setting(num, set);
        Problem p;
        std::vector<float> dy(p.dy.begin(), p.dy.end());
        std::vector<float> tokens(p.table.begin(), p.table.end()),
            positions(p.position_table.begin(), p.position_table.end());
        auto token_truth = tokens, position_truth = positions;
        if (!accumulate) token_truth.assign(tokens.size(), 0.0F), position_truth.assign(positions.size(), 0.0F);
        p.each([&](std::size_t at, std::size_t token, std::size_t position) {
          token_truth[token] += dy[at];
          position_truth[position] += dy[at];
        });
        embedding_backward({.ids = view(p.ids, p.id_shape()),
                            .dy = view(dy, p.y_shape()),
                            .dtokens_table = view(tokens, {p.vocab, p.channels}),
                            .accumulate_tokens = accumulate,
                            .dpositions_table = view(positions, {p.positions, p.channels}),
                            .accumulate_positions = accumulate},
                           host_stream);
        EXPECT_EQ(tokens, token_truth);
        EXPECT_EQ(positions, position_truth);
      }
}

TEST(Embedding, BackwardWithoutPositions) {
  Problem p;
  std::vector<double> tokens(p.table.size(), 5), truth(tokens.size());
  p.each([&](std::size_t at, std::size_t token, std::size_t) { truth[token] += p.dy[at]; });
  embedding_backward({.ids = view(p.ids, p.id_shape()),
                      .dy = view(p.dy, p.y_shape()),
                      .dtokens_table = view(tokens, {p.vocab, p.channels})},
                     host_stream);
  EXPECT_EQ(tokens, truth);
}

TEST(Embedding, BackwardOfPositionsAlone) {
  Problem p;
  std::vector<double> positions(p.position_table.size(), 5), truth(positions.size());
  p.each([&](std::size_t at, std::size_t, std::size_t position) { truth[position] += p.dy[at]; });
  const EmbeddingBackwardArgs none{
      .ids = view(p.ids, p.id_shape()), .dy = view(p.dy, p.y_shape()), .dtokens_table = {}, .dpositions_table = {}};
  embedding_backward(none, host_stream);
  EmbeddingBackwardArgs args = none;
  args.dpositions_table = view(positions, {p.positions, p.channels});
  embedding_backward(args, host_stream);
  EXPECT_EQ(positions, truth);
}

TEST(Embedding, PositionsOfTheirOwn) {
  Problem p;
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < p.batch * p.tokens; ++i)
    positions.push_back(static_cast<std::int32_t>(i % 4));  // a table shorter than T
  std::vector<double> table(p.position_table.begin(), p.position_table.begin() + 4 * p.channels), y(p.dy.size());
  std::vector<double> tokens(p.table.size()), dpositions(table.size(), 5), truth(table.size());
  embedding_forward({.ids = view(p.ids, p.id_shape()),
                     .tokens_table = view(p.table, {p.vocab, p.channels}),
                     .positions_table = view(table, {4, p.channels}),
                     .positions = view(positions, p.id_shape()),
                     .y = view(y, p.y_shape())},
                    host_stream);
  embedding_backward({.ids = view(p.ids, p.id_shape()),
                      .dy = view(p.dy, p.y_shape()),
                      .dtokens_table = view(tokens, {p.vocab, p.channels}),
                      .dpositions_table = view(dpositions, {4, p.channels}),
                      .positions = view(positions, p.id_shape())},
                     host_stream);
  p.each([&](std::size_t at, std::size_t token, std::size_t) {
    const auto channels = static_cast<std::size_t>(p.channels);
    const std::size_t position = at / channels % 4 * channels + at % channels;
    EXPECT_EQ(y[at], p.table[token] + table[position]);
    truth[position] += p.dy[at];
  });
  EXPECT_EQ(dpositions, truth);
}

TEST(Embedding, GradientByFiniteDifferences) {
  Problem p;
  std::vector<double> tokens(p.table.size()), positions(p.position_table.size()), y(p.dy.size());
  embedding_backward({.ids = view(p.ids, p.id_shape()),
                      .dy = view(p.dy, p.y_shape()),
                      .dtokens_table = view(tokens, {p.vocab, p.channels}),
                      .dpositions_table = view(positions, {p.positions, p.channels})},
                     host_stream);
  const auto loss = [&] {
    embedding_forward({.ids = view(p.ids, p.id_shape()),
                       .tokens_table = view(p.table, {p.vocab, p.channels}),
                       .positions_table = view(p.position_table, {p.positions, p.channels}),
                       .y = view(y, p.y_shape())},
                      host_stream);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * p.dy[i];
    return sum;
  };
  const auto check = [&](std::vector<double>& table, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < table.size(); i += 5) {
      const double keep = table[i];
      table[i] = keep + 0.5;
      const double up = loss();
      table[i] = keep - 0.5;
      const double down = loss();
      table[i] = keep;
      EXPECT_NEAR(gradient[i], up - down, 1e-9);
    }
  };
  check(p.table, tokens);
  check(p.position_table, positions);
}

TEST(Embedding, ShapesAreChecked) {
  Problem p;
  std::vector<double> y(p.dy.size());
  EXPECT_THROW(embedding_forward({.ids = view(p.ids, p.id_shape()),
                                  .tokens_table = view(p.table, {p.vocab, p.channels}),
                                  .positions_table = {p.position_table.data(), {10, p.channels}},
                                  .y = view(y, p.y_shape())},
                                 host_stream),
               std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
