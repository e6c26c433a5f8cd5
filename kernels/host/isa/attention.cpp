// SPDX-License-Identifier: Apache-2.0
// Causal attention of one key/value head: forward (FlashAttention-2, Alg. 1) and backward (Alg. 2) on packed tiles.
// Keys and values are packed once per task; the upper triangle is skipped by register tiles, so little more than the
// causal half is computed. For 16-bit inputs P and dS are rounded before their GEMMs, as tensor cores require;
// everything else is fp32 up to the outputs.

#include "kernels/host/attention.hpp"
#include "kernels/host/isa/attention_tiles.hpp"
#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t q_block = attention_q_block, kv_tile = attention_kv_tile;
static_assert(kv_tile % q_block == 0 && q_block % tile_rows == 0 && kv_tile % tile_rows == 0);
static_assert(kv_tile % tile_cols<float> == 0 && kv_tile % tile_cols<double> == 0);
template <class T>
constexpr std::int64_t score_stride = kv_tile + 128 / static_cast<std::int64_t>(sizeof(Acc<T>));  // not a power of two

/// Offsets of the heads of one sequence, and their width padded to register tiles.
template <class T>
struct Heads {
  const AttentionProblem<T>& p;
  std::int64_t b, kv_head;
  std::int64_t group = p.heads / p.kv_heads;
  std::int64_t ld = (p.heads + 2 * p.kv_heads) * p.head_dim;  // of qkv
  std::int64_t ld_out = p.heads * p.head_dim;
  std::int64_t width = round_up(p.head_dim, tile_cols<T>);
  std::int64_t keys = round_up(p.tokens, kv_tile);
  std::int64_t blocks = (p.tokens + q_block - 1) / q_block;

  [[nodiscard]] std::int64_t q(std::int64_t g, std::int64_t t) const {
    return (b * p.tokens + t) * ld + (kv_head * group + g) * p.head_dim;
  }
  [[nodiscard]] std::int64_t k(std::int64_t t) const {
    return (b * p.tokens + t) * ld + (p.heads + kv_head) * p.head_dim;
  }
  [[nodiscard]] std::int64_t v(std::int64_t t) const { return k(t) + p.kv_heads * p.head_dim; }
  [[nodiscard]] std::int64_t out(std::int64_t g, std::int64_t t) const {
    return (b * p.tokens + t) * ld_out + (kv_head * group + g) * p.head_dim;
  }
  [[nodiscard]] std::int64_t lse(std::int64_t g) const { return (b * p.heads + kv_head * group + g) * p.lse_stride; }
  [[nodiscard]] CausalTile tile(std::int64_t row, std::int64_t key) const {
    return {.rows = smaller(q_block, p.tokens - row), .columns = smaller(kv_tile, p.tokens - key), .offset = row - key};
  }
};

/// A bump allocator on the workspace.
template <class T>
struct ScratchAllocator {
  T* next;
  T* take(std::int64_t n) {
    T* const block = next;
    next += n;
    return block;
  }
};

template <class T>
constexpr T infinity = static_cast<T>(__builtin_inf());

template <class T>
inline T largest_of_tile(const T* x, std::int64_t n) {  // n: whole registers
  Vec<T> m = load<T>(x);
  for (std::int64_t c = vec_width<T>; c < n; c += vec_width<T>) {
    const Vec<T> v = load<T>(x + c);
    m = v > m ? v : m;
  }
  T result = m[0];
  for (int i = 1; i < vec_width<T>; ++i) result = m[i] > result ? m[i] : result;
  return result;
}

/// Online softmax: S becomes exp(S - running max); updates maxima and sums, and rescales the output to the new maximum.
template <class T>
[[gnu::noinline]] inline void online_softmax(const CausalTile& tile, Acc<T>* s, Acc<T>* max, Acc<T>* sum, Acc<T>* o,
                                             std::int64_t width) {
  using A = Acc<T>;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    A* const x = s + r * score_stride<T>;
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), vec_width<T>);
    for (std::int64_t c = tile.row_columns(r); c < end; ++c) x[c] = -infinity<A>;
    const A tile_max = largest_of_tile(x, end), old_max = max[r], new_max = tile_max > old_max ? tile_max : old_max;
    Vec<T> sums{};
    for (std::int64_t c = 0; c < end; c += vec_width<T>) {
      const Vec<T> p = exp(load<A>(x + c) - new_max);
      store<A>(x + c, rounded<T>(p));
      sums += p;
    }
    const A rescale = exp(old_max - new_max);
    sum[r] = sum[r] * rescale + sum_of<T>(sums);
    max[r] = new_max;
    if (rescale == 1 || old_max == -infinity<A>) continue;
    A* const row = o + r * width;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) row[c] *= rescale;
  }
}

template <class T>
void forward_block(const Heads<T>& h, std::int64_t g, std::int64_t row, const Acc<T>* keys, const Acc<T>* values,
                   ScratchAllocator<Acc<T>> scratch) {
  using A = Acc<T>;
  const AttentionProblem<T>& p = h.p;
  const std::int64_t d = p.head_dim, rows = smaller(q_block, p.tokens - row);
  A* const q = scratch.take(q_block * h.width);
  A* const o = scratch.take(q_block * h.width);
  A* const s = scratch.take(q_block * score_stride<T>);
  A* const max = scratch.take(64);
  A* const sum = scratch.take(64);
  for (std::int64_t r = 0; r < q_block; ++r) max[r] = -infinity<A>, sum[r] = 0;
  pack_rows<T>({p.qkv + h.q(g, row), h.ld, rows, d}, p.scale, h.width, q);
  for (std::int64_t key = 0; key < row + rows; key += kv_tile) {
    const CausalTile tile = h.tile(row, key);
    matmul_qkt<A>(tile, {q, h.width}, keys + key * d, d, s, score_stride<T>);
    online_softmax<T>(tile, s, max, sum, o, h.width);
    const A* const v = values + key * tile_cols<T>;
    if (key == 0) matmul_pv<false>(tile, s, score_stride<T>, v, h.keys, o, h.width);
    else matmul_pv<true>(tile, s, score_stride<T>, v, h.keys, o, h.width);
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
  const std::int64_t used = one_head ? smaller(p.tokens, (last - head * h.blocks) * q_block) : p.tokens;
  ScratchAllocator<Acc<T>> scratch{workspace};
  Acc<T>* const keys = scratch.take(h.keys * p.head_dim);
  Acc<T>* const values = scratch.take(h.keys * h.width);
  pack_panels_transposed<T>({p.qkv + h.k(0), h.ld, used, p.head_dim}, keys);
  pack_panels<T>({p.qkv + h.v(0), h.ld, used, p.head_dim}, h.keys, values);
  for (std::int64_t i = first; i < last; ++i)
    forward_block(h, i / h.blocks, i % h.blocks * q_block, keys, values, scratch);
}

/// Operands that backward packs once per task, and its accumulators.
template <class T>
struct KeySide {
  Acc<T>*keys_t, *values_t, *keys;  // Kᵀ, Vᵀ, K as B
  Acc<T>*dk, *dv;                   // (keys, width)
};

/// S becomes P = exp(S - lse) and dP becomes dS = P∘(dP - D), zero above the diagonal.
template <class T>
[[gnu::noinline]] inline void softmax_backward(const CausalTile& tile, const Acc<T>* lse, const Acc<T>* delta,
                                               Acc<T>* s, Acc<T>* dp) {
  using A = Acc<T>;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    A* const x = s + r * score_stride<T>;
    A* const y = dp + r * score_stride<T>;
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), vec_width<T>);
    const A row_lse = lse[r], row_delta = delta[r];
    for (std::int64_t c = 0; c < end; c += vec_width<T>) {
      const Vec<T> p = exp(load<A>(x + c) - row_lse);
      store<A>(x + c, rounded<T>(p));
      store<A>(y + c, rounded<T>(p * (load<A>(y + c) - row_delta)));
    }
    for (std::int64_t c = tile.row_columns(r); c < end; ++c) x[c] = y[c] = 0;
  }
}

template <class T>
void backward_block(const Heads<T>& h, std::int64_t g, std::int64_t row, const KeySide<T>& key_side,
                    ScratchAllocator<Acc<T>> scratch) {
  using A = Acc<T>;
  const AttentionProblem<T>& p = h.p;
  const std::int64_t d = p.head_dim, rows = smaller(q_block, p.tokens - row);
  A* const q_rows = scratch.take(q_block * h.width);
  A* const do_rows = scratch.take(q_block * h.width);
  A* const dq = scratch.take(q_block * h.width);
  A* const s = scratch.take(q_block * score_stride<T>);
  A* const dp = scratch.take(q_block * score_stride<T>);
  A* const delta = scratch.take(64);
  pack_rows<T>({p.qkv + h.q(g, row), h.ld, rows, d}, p.scale, h.width, q_rows);
  pack_rows<T>({p.dout + h.out(g, row), h.ld_out, rows, d}, A(1), h.width, do_rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T *x = p.out + h.out(g, row + r), *y = p.dout + h.out(g, row + r);
    Vec<T> dots{};
    for_each_register<T>(d,
                         [=, &dots](std::int64_t c, const auto& part) { dots += part.load(x + c) * part.load(y + c); });
    delta[r] = sum_of<T>(dots);
  }
  for (std::int64_t key = 0; key < row + rows; key += kv_tile) {
    const CausalTile tile = h.tile(row, key);
    matmul_qkt<A>(tile, {q_rows, h.width}, key_side.keys_t + key * d, d, s, score_stride<T>);
    matmul_qkt<A>(tile, {do_rows, h.width}, key_side.values_t + key * d, d, dp, score_stride<T>);
    softmax_backward<T>(tile, p.lse + h.lse(g) + row, delta, s, dp);
    matmul_pt(tile, s, score_stride<T>, do_rows, key_side.dv + key * h.width, h.width);
    matmul_pt(tile, dp, score_stride<T>, q_rows, key_side.dk + key * h.width, h.width);
    const A* const k = key_side.keys + key * tile_cols<T>;
    if (key == 0) matmul_pv<false>(tile, dp, score_stride<T>, k, h.keys, dq, h.width);
    else matmul_pv<true>(tile, dp, score_stride<T>, k, h.keys, dq, h.width);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    T* const to = p.dqkv + h.q(g, row + r);
    const A* const from = dq + r * h.width;
    for_each_register<T>(
        d, [=, &p](std::int64_t c, const auto& part) { part.store(to + c, p.scale * part.load(from + c)); });
  }
}

template <class T>
void backward(const AttentionProblem<T>& p, std::int64_t b, std::int64_t kv_head, Acc<T>* workspace) {
  const Heads<T> h{p, b, kv_head};
  const std::int64_t d = p.head_dim, sums = h.keys * h.width;
  ScratchAllocator<Acc<T>> scratch{workspace};
  const KeySide<T> key_side{.keys_t = scratch.take(h.keys * d),
                            .values_t = scratch.take(h.keys * d),
                            .keys = scratch.take(sums),
                            .dk = scratch.take(sums),
                            .dv = scratch.take(sums)};
  const Source<T> k{p.qkv + h.k(0), h.ld, p.tokens, d}, v{p.qkv + h.v(0), h.ld, p.tokens, d};
  pack_panels_transposed(k, key_side.keys_t);
  pack_panels_transposed(v, key_side.values_t);
  pack_panels(k, h.keys, key_side.keys);
  for (std::int64_t i = 0; i < sums; ++i) key_side.dk[i] = key_side.dv[i] = 0;
  // The same order for any number of threads: head by head, block by block.
  for (std::int64_t g = 0; g < h.group; ++g) {
    for (std::int64_t i = 0; i < h.blocks; ++i) backward_block(h, g, i * q_block, key_side, scratch);
  }
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    T *const dk = p.dqkv + h.k(t), *const dv = p.dqkv + h.v(t);
    const Acc<T>*const from_dk = key_side.dk + t * h.width, *const from_dv = key_side.dv + t * h.width;
    for_each_register<T>(d, [=](std::int64_t c, const auto& part) {
      part.store(dk + c, part.load(from_dk + c));
      part.store(dv + c, part.load(from_dv + c));
    });
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Attention, attention, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
