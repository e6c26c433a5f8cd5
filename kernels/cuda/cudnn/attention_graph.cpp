// SPDX-License-Identifier: Apache-2.0
// The operations of attention. K is read transposed, and in backward V too: the patterns that cuDNN recognizes.
#include <cudnn.h>

#include "kernels/cuda/cudnn/attention_graph.hpp"

namespace tessera::kernels::cuda::cudnn {

namespace {

/// The tensors of one shape.
class Tensors {
 public:
  Tensors(Graph& graph, const GraphShape& shape, DType dtype)
      : graph_(graph),
        s_(shape.part),
        heads_(shape.heads),
        kv_heads_(shape.kv_heads),
        type_(dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF) {
    if (shape.sequences == Sequences::rows) return;
    lengths_ = graph_.integers(lengths, s_.batch);
    in_qkv_ = graph_.integers(qkv_offsets, s_.batch + 1);
    in_out_ = graph_.integers(out_offsets, s_.batch + 1);
    in_lse_ = graph_.integers(lse_offsets, s_.batch + 1);
  }

  /// Heads of `count` in the columns of qkv: (B, count, T, d), or (B, count, d, T).
  [[nodiscard]] Node of_qkv(std::int64_t uid, std::int64_t count) {
    return graph_.memory(uid, type_, {s_.batch, count, s_.tokens, s_.head_dim}, heads(width()), in_qkv_);
  }
  [[nodiscard]] Node of_qkv_transposed(std::int64_t uid) {
    return graph_.memory(uid, type_, {s_.batch, s_.kv_heads, s_.head_dim, s_.tokens},
                         {s_.tokens * width(), s_.head_dim, 1, width()}, in_qkv_);
  }
  [[nodiscard]] Node of_out(std::int64_t uid) {
    return graph_.memory(uid, type_, {s_.batch, s_.heads, s_.tokens, s_.head_dim}, heads(heads_ * s_.head_dim),
                         in_out_);
  }
  [[nodiscard]] Node statistics() {
    const std::int64_t t = s_.tokens;
    const Dims strides = in_lse_ ? Dims{heads_ * t, 1, heads_, 1} : Dims{heads_ * t, t, 1, 1};
    return graph_.memory(lse, CUDNN_DATA_FLOAT, row_dims(), strides, in_lse_);
  }
  [[nodiscard]] Node row_memory(std::int64_t uid) {
    return graph_.memory(uid, CUDNN_DATA_FLOAT, row_dims(), row_strides());
  }

  [[nodiscard]] Node scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) { return graph_.value(type, score_dims()); }
  [[nodiscard]] Node probabilities() { return scores(type_); }
  [[nodiscard]] Node transposed_scores() {
    const std::int64_t t = s_.tokens;
    return graph_.value(type_, score_dims(), Dims{s_.heads * t * t, t * t, 1, t});
  }
  [[nodiscard]] Node row() { return graph_.value(CUDNN_DATA_FLOAT, row_dims()); }
  [[nodiscard]] Node dout_out() { return graph_.value(CUDNN_DATA_FLOAT, {s_.batch, s_.heads, s_.tokens, s_.head_dim}); }
  /// dK or dV of every query head, to be added where heads share keys.
  [[nodiscard]] Node of_every_head() { return graph_.value(type_, {s_.batch, s_.heads, s_.tokens, s_.head_dim}); }
  /// K not transposed.
  [[nodiscard]] Node key_rows() {
    return graph_.value(type_, {s_.batch, s_.kv_heads, s_.tokens, s_.head_dim}, heads(width()), in_qkv_);
  }

  /// Scores of keys that a query does not see become minus infinity.
  [[nodiscard]] Node seen(Node scores_in) {
    const Node masked = causal(scores_in);
    if (s_.window == 0) return masked;
    const Node rows = graph_.index(masked, 2, scores(CUDNN_DATA_INT32)),
               columns = graph_.index(masked, 3, scores(CUDNN_DATA_INT32));
    const Node end = graph_.pointwise(CUDNN_POINTWISE_ADD, {columns, graph_.number(window)}, scores());
    return where(compare(CUDNN_POINTWISE_CMP_GT, end, rows), masked);
  }

  /// `left`·`right`, both (B, nh, T, ·), into dK or dV.
  void into_shared(Node left, Node right, Node to) {
    const MatmulSizes sizes{.m = lengths_, .n = {}, .k = lengths_};
    if (s_.heads == s_.kv_heads) (void)graph_.matmul(left, right, to, sizes);
    else (void)graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, graph_.matmul(left, right, of_every_head(), sizes), to);
  }
  /// The sizes of (T, ·)·(·, T), and of (T, T)·(T, ·).
  [[nodiscard]] MatmulSizes sizes_of_scores() const { return {.m = lengths_, .n = lengths_, .k = {}}; }
  [[nodiscard]] MatmulSizes sizes_of_rows() const { return {.m = lengths_, .n = {}, .k = lengths_}; }

 private:
  /// Scores of later keys, and those of tokens after a document's last one, become minus infinity.
  [[nodiscard]] Node causal(Node scores_in) {
    const Node row_index = graph_.index(scores_in, 2, scores(CUDNN_DATA_INT32)),
               column_index = graph_.index(scores_in, 3, scores(CUDNN_DATA_INT32));
    if (lengths_) {
      const Node in_rows = compare(CUDNN_POINTWISE_CMP_LT, row_index, *lengths_),
                 in_columns = compare(CUDNN_POINTWISE_CMP_LT, column_index, *lengths_);
      scores_in = where(compare(CUDNN_POINTWISE_LOGICAL_AND, in_rows, in_columns), scores_in);
      const Node rows = graph_.index(scores_in, 2, scores(CUDNN_DATA_INT32)),
                 columns = graph_.index(scores_in, 3, scores(CUDNN_DATA_INT32));
      return where(compare(CUDNN_POINTWISE_CMP_GE, rows, columns), scores_in);
    }
    return where(compare(CUDNN_POINTWISE_CMP_GE, row_index, column_index), scores_in);
  }
  [[nodiscard]] Node compare(cudnnPointwiseMode_t how, Node a, Node b) {
    return graph_.pointwise(how, {a, b}, scores(CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN);
  }
  [[nodiscard]] Node where(Node seen, Node scores_in) {
    return graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores_in, graph_.number(minus_infinity), seen}, scores());
  }
  [[nodiscard]] std::int64_t width() const { return (heads_ + 2 * kv_heads_) * s_.head_dim; }
  [[nodiscard]] Dims heads(std::int64_t row) const { return {s_.tokens * row, s_.head_dim, row, 1}; }
  [[nodiscard]] Dims score_dims() const { return {s_.batch, s_.heads, s_.tokens, s_.tokens}; }
  [[nodiscard]] Dims row_dims() const { return {s_.batch, s_.heads, s_.tokens, 1}; }
  [[nodiscard]] Dims row_strides() const { return {s_.heads * s_.tokens, s_.tokens, 1, 1}; }

  Graph& graph_;
  AttentionShape s_;  // of the part
  std::int64_t heads_, kv_heads_;
  cudnnDataType_t type_;
  std::optional<Node> lengths_, in_qkv_, in_out_, in_lse_;  // of documents
};

}  // namespace

Graph forward_graph(const GraphShape& of, DType dtype) {
  Graph g;
  Tensors t(g, of, dtype);
  const AttentionShape& shape = of.part;
  const Node q = t.of_qkv(query, shape.heads), k = t.of_qkv_transposed(key), v = t.of_qkv(value, shape.kv_heads);
  MatmulSizes sizes = t.sizes_of_scores();
  sizes.pads = sizes.m.has_value();
  const Node scaled =
      g.pointwise(CUDNN_POINTWISE_MUL, {g.matmul(q, k, t.scores(), sizes), g.number(scale)}, t.scores());
  const Node masked = t.seen(scaled);
  const Node most = g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, t.row());
  const Node powers =
      g.pointwise(CUDNN_POINTWISE_EXP, {g.pointwise(CUDNN_POINTWISE_SUB, {masked, most}, t.scores())}, t.scores());
  const Node sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, t.row());
  const Node log = g.pointwise(CUDNN_POINTWISE_LOG, {sum}, t.row());
  (void)g.pointwise(CUDNN_POINTWISE_ADD, {most, log}, t.statistics());
  (void)g.matmul(g.pointwise(CUDNN_POINTWISE_DIV, {powers, sum}, t.probabilities()), v, t.of_out(output),
                 t.sizes_of_rows());
  return g;
}

Graph backward_graph(const GraphShape& of, DType dtype) {
  Graph g;
  Tensors t(g, of, dtype);
  const AttentionShape& shape = of.part;
  const Node q = t.of_qkv(query, shape.heads), k = t.of_qkv_transposed(key), v = t.of_qkv_transposed(value);
  const Node out = t.of_out(output), dout = t.of_out(doutput), factor = g.number(scale);
  // delta = Σ over a row of dout·out
  const Node per_row =
      g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.pointwise(CUDNN_POINTWISE_MUL, {dout, out}, t.dout_out()), t.row());
  const Node sums = g.pointwise(CUDNN_POINTWISE_MUL, {per_row, g.number(one)}, t.row_memory(delta));
  // P = exp(scaled scores - lse), dV = Pᵀ·dout
  const Node scaled =
      g.pointwise(CUDNN_POINTWISE_MUL, {g.matmul(q, k, t.scores(), t.sizes_of_scores()), factor}, t.scores());
  const Node masked = t.seen(g.pointwise(CUDNN_POINTWISE_SUB, {scaled, t.statistics()}, t.scores()));
  const Node p = g.pointwise(CUDNN_POINTWISE_EXP, {masked}, t.scores());
  t.into_shared(g.reshape(p, t.transposed_scores()), dout, t.of_qkv(dvalue, shape.kv_heads));
  // dS = (dout·Vᵀ - delta)·P·scale, dK = dSᵀ·Q, dQ = dS·K
  const Node dp =
      g.pointwise(CUDNN_POINTWISE_SUB, {g.matmul(dout, v, t.scores(), t.sizes_of_scores()), sums}, t.scores());
  const Node ds =
      g.pointwise(CUDNN_POINTWISE_MUL, {g.pointwise(CUDNN_POINTWISE_MUL, {dp, p}, t.scores()), factor}, t.scores());
  t.into_shared(g.reshape(ds, t.transposed_scores()), q, t.of_qkv(dkey, shape.kv_heads));
  (void)g.matmul(ds, g.reshape(k, t.key_rows()), t.of_qkv(dquery, shape.heads), t.sizes_of_rows());
  return g;
}

}  // namespace tessera::kernels::cuda::cudnn
