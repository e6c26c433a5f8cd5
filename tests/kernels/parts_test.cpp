// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and embedding by parts of the vocabulary: the bits of the operations on all of it.

#include <cstring>

#include "kernels/cross_entropy_parts.hpp"
#include "kernels/embedding.hpp"
#include "kernels/embedding_parts.hpp"
#include "kernels/threads.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
class CrossEntropyParts {
 public:
  CrossEntropyParts(std::int64_t n, std::int64_t c, std::int64_t v, bool weighted)
      : n_(n), c_(c), v_(v), x_(random_vector<T>(n * c, 1)), w_(random_vector<T>(v * c, 2)) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<std::uint64_t>(i);
      targets_.push_back(uniform(3, k) < 0.2 ? ignore_index
                                             : static_cast<std::int32_t>(uniform(4, k) * static_cast<double>(v)));
      if (weighted) weights_.push_back(static_cast<float>(uniform(5, k)));
    }
    dx_ = random_vector<T>(n * c, 6);
    dw_ = random_vector<T>(v * c, 7);
  }

  void whole(bool accumulate) {
    std::vector<std::byte> workspace(linear_cross_entropy_workspace(n_, v_, x().dtype));
    linear_cross_entropy({.x = x(),
                          .weight = {w_.data(), Shape{v_, c_}},
                          .targets = targets(),
                          .weights = weights(),
                          .logits = rules(),
                          .sums = &sums,
                          .workspace = bytes(workspace),
                          .loss_scale = &scale_,
                          .dx = {dx_.data(), Shape{n_, c_}},
                          .dweight = {dw_.data(), Shape{v_, c_}},
                          .accumulate = accumulate},
                         host_stream);
  }
  /// Parts of `chunks` chunks.
  void parts(std::int64_t chunks, bool accumulate) {
    std::vector<std::byte> workspace(cross_entropy_part_workspace(n_, v_, x().dtype)),
        rows(cross_entropy_rows_bytes(n_));
    const std::int64_t count = chunks * cross_entropy_chunk(v_);
    const auto part = [&](std::int64_t first) {
      const std::int64_t some = std::min(count, v_ - first);
      return CrossEntropyPart{.x = x(),
                              .weight = {w_.data() + first * c_, Shape{some, c_}},
                              .vocab = v_,
                              .first = first,
                              .logits = rules(),
                              .targets = targets(),
                              .weights = weights(),
                              .rows = bytes(rows),
                              .workspace = bytes(workspace)};
    };
    for (std::int64_t first = 0; first < v_; first += count) cross_entropy_part(part(first), sums);
    for (std::int64_t first = 0; first < v_; first += count)
      cross_entropy_part_backward(part(first), {.loss_scale = scale_,
                                                .dx = {dx_.data(), Shape{n_, c_}},
                                                .dweight = {dw_.data() + first * c_, part(first).weight.shape},
                                                .accumulate = accumulate});
  }
  [[nodiscard]] bool operator==(const CrossEntropyParts& other) const {
    return same(dx_, other.dx_) && same(dw_, other.dw_) && sums.loss.value() == other.sums.loss.value() &&
           sums.tokens == other.sums.tokens && sums.correct == other.sums.correct;
  }
  LossSums sums;

 private:
  [[nodiscard]] TensorView x() { return {x_.data(), Shape{n_, c_}}; }
  [[nodiscard]] TensorView targets() { return {targets_.data(), Shape{n_}}; }
  [[nodiscard]] TensorView weights() {
    return weights_.empty() ? TensorView{} : TensorView{weights_.data(), Shape{n_}};
  }
  [[nodiscard]] LogitRules rules() const { return weights_.empty() ? LogitRules{} : LogitRules{0.7, 3}; }
  static TensorView bytes(std::vector<std::byte>& memory) {
    return {memory.data(), DType::u8, Shape{static_cast<std::int64_t>(memory.size())}};
  }
  std::int64_t n_, c_, v_;
  std::vector<T> x_, w_, dx_, dw_;
  std::vector<std::int32_t> targets_;
  std::vector<float> weights_;
  double scale_ = 0.01;
};

template <class T>
void expect_same_loss() {
  // 1,100 rows are several blocks.
  for (const auto& [n, c, v] : {std::array<std::int64_t, 3>{1100, 8, 4200}, {5, 24, 6200}, {40, 16, 2100}})
    for (const bool accumulate : {false, true}) {
      CrossEntropyParts<T> whole(n, c, v, accumulate);
      whole.whole(accumulate);
      for (const std::int64_t chunks : {1, 2}) {
        CrossEntropyParts<T> parts(n, c, v, accumulate);
        parts.parts(chunks, accumulate);
        EXPECT_TRUE(whole == parts) << n << " x " << v << ", " << chunks << " chunks a part";
      }
    }
}

TEST(Parts, CrossEntropyHasTheBitsOfTheWholeVocabulary) {
  for (const int threads : {1, 2}) {
    set_threads(threads);
    expect_same_loss<float>();
    expect_same_loss<double>();
  }
  set_threads(1);
}

TEST(Parts, EmbeddingHasTheBitsOfTheWholeTable) {
  constexpr std::int64_t rows = 3, tokens = 50, c = 24, v = 31;
  std::vector<std::int32_t> ids, positions;
  for (std::uint64_t i = 0; i < rows * tokens; ++i) {
    ids.push_back(static_cast<std::int32_t>(uniform(8, i) * v));
    positions.push_back(static_cast<std::int32_t>(i % 7));
  }
  auto table = random_vector<float>(v * c, 9), of_positions = random_vector<float>(tokens * c, 10),
       dy = random_vector<float>(rows * tokens * c, 11);
  const Shape shape{rows, tokens, c};
  const TensorView id_view{ids.data(), Shape{rows, tokens}}, p_table{of_positions.data(), Shape{tokens, c}};
  for (const bool packed : {false, true}) {
    const TensorView p = packed ? TensorView{positions.data(), Shape{rows, tokens}} : TensorView{};
    std::vector<float> y(dy.size()), y_parts(dy.size());
    embedding_forward({.ids = id_view,
                       .tokens_table = {table.data(), Shape{v, c}},
                       .positions_table = p_table,
                       .positions = p,
                       .y = {y.data(), shape}},
                      host_stream);
    auto d = random_vector<float>(v * c, 12), d_parts = d;
    embedding_backward({.ids = id_view,
                        .dy = {dy.data(), shape},
                        .dtokens_table = {d.data(), Shape{v, c}},
                        .accumulate_tokens = packed,
                        .dpositions_table = {}},
                       host_stream);
    for (std::int64_t first = 0; first < v; first += 10) {
      const std::int64_t count = std::min<std::int64_t>(10, v - first);
      embedding_part_forward({.ids = id_view,
                              .tokens_table = {table.data() + first * c, Shape{count, c}},
                              .first = first,
                              .y = {y_parts.data(), shape}});
      embedding_part_backward({.ids = id_view,
                               .dy = {dy.data(), shape},
                               .first = first,
                               .dtokens_table = {d_parts.data() + first * c, Shape{count, c}},
                               .accumulate = packed});
    }
    add_positions({.positions_table = p_table, .positions = p, .y = {y_parts.data(), shape}});
    EXPECT_TRUE(same(y, y_parts));
    EXPECT_TRUE(same(d, d_parts));
  }
}

}  // namespace
}  // namespace tessera::kernels
