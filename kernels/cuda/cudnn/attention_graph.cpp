// SPDX-License-Identifier: Apache-2.0
// The operations of attention. K is read transposed, and in backward V too: the patterns that cuDNN recognizes.
#include <cudnn.h>

#include "kernels/cuda/cudnn/attention_graph.hpp"

namespace tessera::kernels::cuda::cudnn {

namespace {

/// The tensors of one shape.
class Tensors {
 public:
  Tensors(Graph& graph, const AttentionShape& shape, DType dtype)
      : graph_(graph), s_(shape), type_(dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF) {}

  /// Heads of `count` in the columns of qkv: (B, count, T, d), or (B, count, d, T).
  [[nodiscard]] Node of_qkv(std::int64_t uid, std::int64_t count) {
    return graph_.memory(uid, type_, {s_.batch, count, s_.tokens, s_.head_dim}, heads(width()));
  }
  [[nodiscard]] Node of_qkv_transposed(std::int64_t uid) {
    return graph_.memory(uid, type_, {s_.batch, s_.kv_heads, s_.head_dim, s_.tokens},
                         {s_.tokens * width(), s_.head_dim, 1, width()});
  }
  [[nodiscard]] Node of_out(std::int64_t uid) {
    return graph_.memory(uid, type_, {s_.batch, s_.heads, s_.tokens, s_.head_dim}, heads(s_.heads * s_.head_dim));
  }
  [[nodiscard]] Node row_memory(std::int64_t uid) {
    return graph_.memory(uid, CUDNN_DATA_FLOAT, row_dims(), {s_.heads * s_.tokens, s_.tokens, 1, 1});
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
    return graph_.value(type_, {s_.batch, s_.kv_heads, s_.tokens, s_.head_dim}, heads(width()));
  }

  /// Scores of later keys become minus infinity.
  [[nodiscard]] Node causal(Node scores_in) {
    const Node rows = graph_.index(scores_in, 2, scores(CUDNN_DATA_INT32)),
               columns = graph_.index(scores_in, 3, scores(CUDNN_DATA_INT32));
    const Node seen =
        graph_.pointwise(CUDNN_POINTWISE_CMP_GE, {rows, columns}, scores(CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN);
    return graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores_in, graph_.number(minus_infinity), seen}, scores());
  }
  /// `left`·`right`, both (B, nh, T, ·), into dK or dV.
  void into_shared(Node left, Node right, Node to) {
    if (s_.heads == s_.kv_heads) (void)graph_.matmul(left, right, to);
    else (void)graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, graph_.matmul(left, right, of_every_head()), to);
  }

 private:
  [[nodiscard]] std::int64_t width() const { return (s_.heads + 2 * s_.kv_heads) * s_.head_dim; }
  [[nodiscard]] Dims heads(std::int64_t row) const { return {s_.tokens * row, s_.head_dim, row, 1}; }
  [[nodiscard]] Dims score_dims() const { return {s_.batch, s_.heads, s_.tokens, s_.tokens}; }
  [[nodiscard]] Dims row_dims() const { return {s_.batch, s_.heads, s_.tokens, 1}; }

  Graph& graph_;
  AttentionShape s_;
  cudnnDataType_t type_;
};

}  // namespace

Graph forward_graph(const AttentionShape& shape, DType dtype) {
  Graph g;
  Tensors t(g, shape, dtype);
  const Node q = t.of_qkv(query, shape.heads), k = t.of_qkv_transposed(key), v = t.of_qkv(value, shape.kv_heads);
  const Node scaled = g.pointwise(CUDNN_POINTWISE_MUL, {g.matmul(q, k, t.scores()), g.number(scale)}, t.scores());
  const Node masked = t.causal(scaled);
  const Node most = g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, t.row());
  const Node powers =
      g.pointwise(CUDNN_POINTWISE_EXP, {g.pointwise(CUDNN_POINTWISE_SUB, {masked, most}, t.scores())}, t.scores());
  const Node sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, t.row());
  const Node log = g.pointwise(CUDNN_POINTWISE_LOG, {sum}, t.row());
  (void)g.pointwise(CUDNN_POINTWISE_ADD, {most, log}, t.row_memory(lse));
  (void)g.matmul(g.pointwise(CUDNN_POINTWISE_DIV, {powers, sum}, t.probabilities()), v, t.of_out(output));
  return g;
}

Graph backward_graph(const AttentionShape& shape, DType dtype) {
  Graph g;
  Tensors t(g, shape, dtype);
  const Node q = t.of_qkv(query, shape.heads), k = t.of_qkv_transposed(key), v = t.of_qkv_transposed(value);
  const Node out = t.of_out(output), dout = t.of_out(doutput), factor = g.number(scale);
  // delta = Σ over a row of dout·out
  const Node per_row =
      g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.pointwise(CUDNN_POINTWISE_MUL, {dout, out}, t.dout_out()), t.row());
  const Node sums = g.pointwise(CUDNN_POINTWISE_MUL, {per_row, g.number(one)}, t.row_memory(delta));
  // P = exp(scaled scores - lse), dV = Pᵀ·dout
  const Node scaled = g.pointwise(CUDNN_POINTWISE_MUL, {g.matmul(q, k, t.scores()), factor}, t.scores());
  const Node masked = t.causal(g.pointwise(CUDNN_POINTWISE_SUB, {scaled, t.row_memory(lse)}, t.scores()));
  const Node p = g.pointwise(CUDNN_POINTWISE_EXP, {masked}, t.scores());
  t.into_shared(g.reshape(p, t.transposed_scores()), dout, t.of_qkv(dvalue, shape.kv_heads));
  // dS = (dout·Vᵀ - delta)·P·scale, dK = dSᵀ·Q, dQ = dS·K
  const Node dp = g.pointwise(CUDNN_POINTWISE_SUB, {g.matmul(dout, v, t.scores()), sums}, t.scores());
  const Node ds =
      g.pointwise(CUDNN_POINTWISE_MUL, {g.pointwise(CUDNN_POINTWISE_MUL, {dp, p}, t.scores()), factor}, t.scores());
  t.into_shared(g.reshape(ds, t.transposed_scores()), q, t.of_qkv(dkey, shape.kv_heads));
  (void)g.matmul(ds, g.reshape(k, t.key_rows()), t.of_qkv(dquery, shape.heads));
  return g;
}

}  // namespace tessera::kernels::cuda::cudnn
