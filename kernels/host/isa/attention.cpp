// SPDX-License-Identifier: Apache-2.0
// Causal attention of one key/value head: forward (FlashAttention-2, Alg. 1) and backward (Alg. 2) on packed tiles.
// Keys and values are packed once per task; the upper triangle is skipped by register tiles, so little more than the
// causal half is computed. For 16-bit inputs P and dS are rounded before their GEMMs, as tensor cores require;
// everything else is fp32 up to the outputs. Where GEMMs use a bf16 dot-product instruction, scores and dK are scaled
// after their GEMM, in fp32; elsewhere Q is scaled as it is packed. A soft cap is a pass over the tile of scores, a
// sink the state with which the online softmax begins.

#include "kernels/host/isa/attention_softmax.hpp"
#include "kernels/host/isa/horizontal_sum.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// Offsets of the heads of one sequence, and their width padded to register tiles.
template <class T>
struct Heads {
  using Op = Operand<T>;
  const AttentionProblem<T>& p;
  std::int64_t b, kv_head;
  std::int64_t group = p.heads / p.kv_heads;
  std::int64_t ld_out = p.heads * p.head_dim;
  std::int64_t width = round_up(p.head_dim, tile_cols<T>);
  std::int64_t depth = in_operands<Op>(p.head_dim);    // of Q·Kᵀ and dO·Vᵀ
  std::int64_t row_operands = width / numbers_of<Op>;  // of a packed row of Q or dO
  std::int64_t keys = round_up(p.keys, kv_tile);
  std::int64_t blocks = (p.tokens + q_block - 1) / q_block;

  /// Rows of a query head or of the key head, from row t on.
  template <class E>
  [[nodiscard]] E* query(const HeadRowsOf<E>& of, std::int64_t g, std::int64_t t) const {
    return of.data + (b * p.tokens + t) * of.pitch + (kv_head * group + g) * p.head_dim;
  }
  template <class E>
  [[nodiscard]] E* key(const HeadRowsOf<E>& of, std::int64_t t) const {
    return of.data + (b * p.keys + t) * of.pitch + kv_head * p.head_dim;
  }
  [[nodiscard]] std::int64_t out(std::int64_t g, std::int64_t t) const {
    return (b * p.tokens + t) * ld_out + (kv_head * group + g) * p.head_dim;
  }
  [[nodiscard]] std::int64_t lse(std::int64_t g) const { return (b * p.heads + kv_head * group + g) * p.lse_stride; }
  /// K or V as the B of P·V, packed for all keys; and its part from a key on.
  [[nodiscard]] Panels<Op> panels(Op* data) const {
    return {data, tile_cols<Op>, keys / numbers_of<Op> * tile_cols<Op>};
  }
  [[nodiscard]] Panels<const Op> from_key(const Panels<Op>& all, std::int64_t key) const {
    return {all.data + key / numbers_of<Op> * all.row_stride, all.row_stride, all.panel_stride};
  }
  /// `packed`: how many keys are there.
  [[nodiscard]] CausalTile tile(std::int64_t row, std::int64_t key, std::int64_t packed) const {
    return {.rows = smaller(q_block, p.tokens - row),
            .columns = smaller(kv_tile, packed - key),
            .offset = p.offset + row - key,
            .window = p.window};
  }
  /// The tiles of keys that a block of queries sees, from a multiple of kv_tile on.
  [[nodiscard]] std::int64_t first_key(std::int64_t row) const {
    const std::int64_t first = p.offset + row + 1 - p.window;
    return first > 0 ? first / kv_tile * kv_tile : 0;
  }
  [[nodiscard]] std::int64_t end_key(std::int64_t row) const { return p.offset + smaller(row + q_block, p.tokens); }
};

/// A bump allocator on the workspace.
template <class T>
struct ScratchAllocator {
  Acc<T>* next;
  Acc<T>* take(std::int64_t n) {
    Acc<T>* const block = next;
    next += n;
    return block;
  }
  Operand<T>* take_operands(std::int64_t n) {
    static_assert(sizeof(Operand<T>) == sizeof(Acc<T>));
    return reinterpret_cast<Operand<T>*>(take(n));
  }
};

/// What Q is multiplied by as it is packed, and what remains to be multiplied into scores and dK.
template <class T>
struct Scales {
  explicit Scales(Acc<T> scale)
      : packed(has_dot_product<T> ? Acc<T>(1) : scale), later(has_dot_product<T> ? scale : Acc<T>(1)) {}
  Acc<T> packed, later;
};

/// The first keys and values of a head as B.
template <class T>
struct PackedKeys {
  Operand<T>* keys;  // transposed
  Panels<Operand<T>> values;
  std::int64_t count;
};

template <class T>
void forward_block(const Heads<T>& h, std::int64_t g, std::int64_t row, const PackedKeys<T>& packed,
                   ScratchAllocator<T> scratch) {
  using A = Acc<T>;
  using Op = Operand<T>;
  const AttentionProblem<T>& p = h.p;
  const std::int64_t d = p.head_dim, rows = smaller(q_block, p.tokens - row);
  const Scales<T> scales(p.scale);
  Op* const q = scratch.take_operands(q_block * h.row_operands);
  A* const o = scratch.take(q_block * h.width);
  A* const s = scratch.take(q_block * score_stride<T>);
  A* const max = scratch.take(64);
  A* const sum = scratch.take(64);
  const A sink = p.sinks ? widen(p.sinks[h.kv_head * h.group + g]) : -infinity<A>;
  for (std::int64_t r = 0; r < q_block; ++r) max[r] = sink, sum[r] = p.sinks ? 1 : 0;
  pack_rows<T>({h.query(p.q, g, row), p.q.pitch, rows, d}, scales.packed, h.row_operands, q);
  const std::int64_t first = h.first_key(row), end = h.end_key(row);
  for (std::int64_t key = first; key < end; key += kv_tile) {
    const CausalTile tile = h.tile(row, key, packed.count);
    matmul_qkt<Op>(tile, {q, h.row_operands}, packed.keys + key * h.depth, h.depth, s, score_stride<T>);
    if (p.soft_cap > 0) soft_cap<T>(tile, scales.later, p.soft_cap, s);
    online_softmax<T>(tile, p.soft_cap > 0 ? A(1) : scales.later, s, max, sum, o, h.width);
    const TileB<Op> probabilities{reinterpret_cast<const Op*>(s), score_stride<T>};
    if (key == first) matmul_pv<false, Op>(tile, probabilities, h.from_key(packed.values, key), o, h.width);
    else matmul_pv<true, Op>(tile, probabilities, h.from_key(packed.values, key), o, h.width);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    T* const to = p.out_w + h.out(g, row + r);
    const A* const from = o + r * h.width;
    const A inverse = 1 / sum[r];
    for_each_register<T>(d,
                         [=](std::int64_t c, const auto& part) { part.store(to + c, part.load(from + c) * inverse); });
    if (p.lse) p.lse[h.lse(g) + row + r] = max[r] + log(sum[r]) + (sum[r] - sum[r]);  // log() does not propagate NaN
  }
}

template <class T>
void forward(const AttentionProblem<T>& p, std::int64_t b, std::int64_t kv_head, std::int64_t first, std::int64_t last,
             Acc<T>* workspace) {
  const Heads<T> h{p, b, kv_head};
  // A slice within one head needs no keys after its last row.
  const std::int64_t head = first / h.blocks;
  const bool one_head = (last - 1) / h.blocks == head;
  const std::int64_t used = p.offset + (one_head ? smaller(p.tokens, (last - head * h.blocks) * q_block) : p.tokens);
  ScratchAllocator<T> scratch{workspace};
  const PackedKeys<T> packed{.keys = scratch.take_operands(h.keys * h.depth),
                             .values = h.panels(scratch.take_operands(h.keys * h.row_operands)),
                             .count = used};
  pack_panels_transposed<T>({h.key(p.k, 0), p.k.pitch, used, p.head_dim}, packed.keys);
  pack_panels<T>({h.key(p.v, 0), p.v.pitch, used, p.head_dim}, packed.values);
  for (std::int64_t i = first; i < last; ++i) forward_block(h, i / h.blocks, i % h.blocks * q_block, packed, scratch);
}

/// Operands that backward packs once per task, and its accumulators.
template <class T>
struct KeySide {
  Operand<T>*keys_t, *values_t;  // Kᵀ, Vᵀ as B
  Panels<Operand<T>> keys;       // K as B
  Acc<T>*dk, *dv;                // (keys, width)
};

/// A block of rows of Q or dO, as A of a GEMM with its columns as depth, and as B of one with its rows as depth. Both
/// are the same, unless an operand is two numbers.
template <class T>
struct QueryRows {
  const Operand<T>*a, *b;
};
template <class T>
QueryRows<T> pack_query_rows(const Heads<T>& h, const Source<T>& x, Acc<T> factor, ScratchAllocator<T>& scratch) {
  Operand<T>* const a = scratch.take_operands(q_block * h.row_operands);
  pack_rows<T>(x, factor, h.row_operands, a);
  if constexpr (has_dot_product<T>) {
    Operand<T>* const b = scratch.take_operands(q_block * h.row_operands);
    pack_panels<T>(x, {b, h.width, tile_cols<Operand<T>>});
    return {a, b};
  } else {
    return {a, a};
  }
}

template <class T>
void backward_block(const Heads<T>& h, std::int64_t g, std::int64_t row, const KeySide<T>& key_side,
                    ScratchAllocator<T> scratch) {
  using A = Acc<T>;
  using Op = Operand<T>;
  const AttentionProblem<T>& p = h.p;
  const std::int64_t d = p.head_dim, rows = smaller(q_block, p.tokens - row);
  const Scales<T> scales(p.scale);
  const QueryRows<T> q = pack_query_rows<T>(h, {h.query(p.q, g, row), p.q.pitch, rows, d}, scales.packed, scratch);
  const QueryRows<T> dout = pack_query_rows<T>(h, {p.dout + h.out(g, row), h.ld_out, rows, d}, A(1), scratch);
  A* const dq = scratch.take(q_block * h.width);
  Scores<T> scores{.s = scratch.take(q_block * score_stride<T>), .dp = scratch.take(q_block * score_stride<T>)};
  if constexpr (has_dot_product<T>) scores.ds = scratch.take_operands(q_block * ds_stride<T>);
  else scores.ds = scores.dp;
  A* const delta = scratch.take(64);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T *x = p.out + h.out(g, row + r), *y = p.dout + h.out(g, row + r);
    Vec<T> dots{};
    for_each_register<T>(d,
                         [=, &dots](std::int64_t c, const auto& part) { dots += part.load(x + c) * part.load(y + c); });
    delta[r] = sum_of<T>(dots);
    if (p.delta) p.delta[h.lse(g) + row + r] = delta[r];
  }
  const TileB<Op> probabilities{reinterpret_cast<const Op*>(scores.s), transposed_stride<T>},
      dscores{reinterpret_cast<const Op*>(scores.dp), transposed_stride<T>}, dscores_rows{scores.ds, ds_stride<T>};
  const std::int64_t first = h.first_key(row), end = h.end_key(row);
  for (std::int64_t key = first; key < end; key += kv_tile) {
    const CausalTile tile = h.tile(row, key, p.keys);
    const A* const lse = p.lse + h.lse(g) + row;
    matmul_qkt<Op>(tile, {q.a, h.row_operands}, key_side.keys_t + key * h.depth, h.depth, scores.s, score_stride<T>);
    matmul_qkt<Op>(tile, {dout.a, h.row_operands}, key_side.values_t + key * h.depth, h.depth, scores.dp,
                   score_stride<T>);
    if (p.soft_cap > 0) score_gradients<true, T>(tile, scales.later, p.soft_cap, lse, delta, scores);
    else score_gradients<false, T>(tile, scales.later, A(0), lse, delta, scores);
    matmul_pt<Op>(tile, probabilities, dout.b, key_side.dv + key * h.width, h.width);
    matmul_pt<Op>(tile, dscores, q.b, key_side.dk + key * h.width, h.width);
    if (key == first) matmul_pv<false, Op>(tile, dscores_rows, h.from_key(key_side.keys, key), dq, h.width);
    else matmul_pv<true, Op>(tile, dscores_rows, h.from_key(key_side.keys, key), dq, h.width);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    T* const to = h.query(p.dq, g, row + r);
    const A* const from = dq + r * h.width;
    for_each_register<T>(
        d, [=, &p](std::int64_t c, const auto& part) { part.store(to + c, p.scale * part.load(from + c)); });
  }
}

template <class T>
void backward(const AttentionProblem<T>& p, std::int64_t b, std::int64_t kv_head, Acc<T>* workspace) {
  const Heads<T> h{p, b, kv_head};
  const std::int64_t d = p.head_dim, sums = h.keys * h.width;
  ScratchAllocator<T> scratch{workspace};
  const KeySide<T> key_side{.keys_t = scratch.take_operands(h.keys * h.depth),
                            .values_t = scratch.take_operands(h.keys * h.depth),
                            .keys = h.panels(scratch.take_operands(h.keys * h.row_operands)),
                            .dk = scratch.take(sums),
                            .dv = scratch.take(sums)};
  const Source<T> k{h.key(p.k, 0), p.k.pitch, p.keys, d}, v{h.key(p.v, 0), p.v.pitch, p.keys, d};
  pack_panels_transposed<T>(k, key_side.keys_t);
  pack_panels_transposed<T>(v, key_side.values_t);
  pack_panels<T>(k, key_side.keys);
  for (std::int64_t i = 0; i < sums; ++i) key_side.dk[i] = key_side.dv[i] = 0;
  // The same order for any number of threads: head by head, block by block.
  for (std::int64_t g = 0; g < h.group; ++g) {
    for (std::int64_t i = 0; i < h.blocks; ++i) backward_block(h, g, i * q_block, key_side, scratch);
  }
  const Acc<T> dk_scale = Scales<T>(p.scale).later;
  for (std::int64_t t = 0; t < p.keys; ++t) {
    T *const dk = h.key(p.dk, t), *const dv = h.key(p.dv, t);
    const Acc<T>*const from_dk = key_side.dk + t * h.width, *const from_dv = key_side.dv + t * h.width;
    for_each_register<T>(d, [=](std::int64_t c, const auto& part) {
      part.store(dk + c, dk_scale * part.load(from_dk + c));
      part.store(dv + c, part.load(from_dv + c));
    });
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Attention, attention, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
