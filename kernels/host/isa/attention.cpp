// SPDX-License-Identifier: Apache-2.0
// Causal attention of one key/value head: forward (FlashAttention-2, Alg. 1) and backward (Alg. 2) on packed tiles.
// Keys and values are packed once per task; the upper triangle is skipped by register tiles, so little more than the
// causal half is computed. For 16-bit inputs P and dS are rounded before their GEMMs, as tensor cores require;
// everything else is fp32 up to the outputs. Where GEMMs use a bf16 dot-product instruction, scores and dK are scaled
// after their GEMM, in fp32; elsewhere Q is scaled as it is packed.

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
constexpr std::int64_t score_stride = kv_tile + 64 / static_cast<std::int64_t>(sizeof(Acc<T>));  // odd, in cache lines

/// Offsets of the heads of one sequence, and their width padded to register tiles.
template <class T>
struct Heads {
  using Op = Operand<T>;
  const AttentionProblem<T>& p;
  std::int64_t b, kv_head;
  std::int64_t group = p.heads / p.kv_heads;
  std::int64_t ld = (p.heads + 2 * p.kv_heads) * p.head_dim;  // of qkv
  std::int64_t ld_out = p.heads * p.head_dim;
  std::int64_t width = round_up(p.head_dim, tile_cols<T>);
  std::int64_t depth = in_operands<Op>(p.head_dim);    // of Q·Kᵀ and dO·Vᵀ
  std::int64_t row_operands = width / numbers_of<Op>;  // of a packed row of Q or dO
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
  /// K or V as the B of P·V, packed for all keys; and its part from a key on.
  [[nodiscard]] Panels<Op> panels(Op* data) const {
    return {data, tile_cols<Op>, keys / numbers_of<Op> * tile_cols<Op>};
  }
  [[nodiscard]] Panels<const Op> from_key(const Panels<Op>& all, std::int64_t key) const {
    return {all.data + key / numbers_of<Op> * all.row_stride, all.row_stride, all.panel_stride};
  }
  [[nodiscard]] CausalTile tile(std::int64_t row, std::int64_t key) const {
    return {.rows = smaller(q_block, p.tokens - row), .columns = smaller(kv_tile, p.tokens - key), .offset = row - key};
  }
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

/// Online softmax: S becomes exp(scale·S - running max), as operands of P·V from the beginning of each row; updates
/// maxima and sums, and rescales the output to the new maximum.
template <class T>
[[gnu::noinline]] inline void online_softmax(const CausalTile& tile, Acc<T> scale, Acc<T>* s, Acc<T>* max, Acc<T>* sum,
                                             Acc<T>* o, std::int64_t width) {
  using A = Acc<T>;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    A* const x = s + r * score_stride<T>;
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), vec_width<T>);
    for (std::int64_t c = tile.row_columns(r); c < end; ++c) x[c] = -infinity<A>;
    const A tile_max = scale * largest_of_tile(x, end), old_max = max[r],
            new_max = tile_max > old_max ? tile_max : old_max;
    Vec<T> sums{};
    for (std::int64_t c = 0; c < end; c += vec_width<T>) {
      const Vec<T> p = exp(multiply_add<A>(splat(scale), load<A>(x + c), splat(-new_max)));
      if constexpr (has_dot_product<T>) store<T>(reinterpret_cast<T*>(x) + c, p);
      else store<A>(x + c, rounded<T>(p));
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
void forward_block(const Heads<T>& h, std::int64_t g, std::int64_t row, const Operand<T>* keys,
                   const Panels<Operand<T>>& values, ScratchAllocator<T> scratch) {
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
  for (std::int64_t r = 0; r < q_block; ++r) max[r] = -infinity<A>, sum[r] = 0;
  pack_rows<T>({p.qkv + h.q(g, row), h.ld, rows, d}, scales.packed, h.row_operands, q);
  for (std::int64_t key = 0; key < row + rows; key += kv_tile) {
    const CausalTile tile = h.tile(row, key);
    matmul_qkt<Op>(tile, {q, h.row_operands}, keys + key * h.depth, h.depth, s, score_stride<T>);
    online_softmax<T>(tile, scales.later, s, max, sum, o, h.width);
    const TileB<Op> probabilities{reinterpret_cast<const Op*>(s), score_stride<T>};
    if (key == 0) matmul_pv<false, Op>(tile, probabilities, h.from_key(values, key), o, h.width);
    else matmul_pv<true, Op>(tile, probabilities, h.from_key(values, key), o, h.width);
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
  ScratchAllocator<T> scratch{workspace};
  Operand<T>* const keys = scratch.take_operands(h.keys * h.depth);
  const Panels<Operand<T>> values = h.panels(scratch.take_operands(h.keys * h.row_operands));
  pack_panels_transposed<T>({p.qkv + h.k(0), h.ld, used, p.head_dim}, keys);
  pack_panels<T>({p.qkv + h.v(0), h.ld, used, p.head_dim}, values);
  for (std::int64_t i = first; i < last; ++i)
    forward_block(h, i / h.blocks, i % h.blocks * q_block, keys, values, scratch);
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

/// Scores of a block, (q_block, score_stride) each, and what softmax_backward makes of them.
template <class T>
struct Scores {
  Acc<T>*s, *dp;
  Operand<T>* ds;  // dS as A of dS·K: rows ds_stride apart; dp itself, unless an operand is two numbers
};
template <class T>
constexpr std::int64_t ds_stride = has_dot_product<T> ? kv_tile / 2 + 16 : score_stride<T>;
/// From one row of P or dS as A of Pᵀ·dO or dSᵀ·Q to the next: a row holds the queries of an operand.
template <class T>
constexpr std::int64_t transposed_stride = numbers_of<Operand<T>>* score_stride<T>;

/// S becomes P = exp(S - lse) and dP becomes dS = P∘(dP - D), zero above the diagonal.
template <class T>
[[gnu::noinline]] inline void softmax_backward(const CausalTile& tile, const Acc<T>* lse, const Acc<T>* delta,
                                               const Scores<T>& scores) {
  using A = Acc<T>;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    A* const x = scores.s + r * score_stride<T>;
    A* const y = scores.dp + r * score_stride<T>;
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

#if defined(__AVX512BF16__)
/// Two registers rounded to bf16, first[i] and second[i] in one operand. Subnormal numbers become zero, which the
/// dot-product instruction takes them for.
inline VecBits packed_bf16x2(const Vec<float>& first, const Vec<float>& second) {
  const auto both = reinterpret_cast<__m512i>(_mm512_maskz_cvtne2ps_pbh(~0U, second, first));
  const VecBits order = 0x100000 + 0x10001 * VecBits{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return reinterpret_cast<VecBits>(_mm512_maskz_permutexvar_epi16(~0U, reinterpret_cast<__m512i>(order), both));
}

/// As softmax_backward, for the dot-product instruction: P and dS with two queries in an operand, in the even rows of s
/// and dp; and dS with two keys in an operand. P = exp(scale·S - lse).
[[gnu::noinline]] inline void softmax_backward_bf16x2(const CausalTile& tile, float scale, const float* lse,
                                                      const float* delta, const Scores<bf16>& scores) {
  constexpr std::int64_t w = vec_width<float>, ld = score_stride<bf16>;
  for (std::int64_t r = 0; r < tile.rows; r += 2) {
    float *const s = scores.s + r * ld, *const dp = scores.dp + r * ld;
    bf16* const ds = reinterpret_cast<bf16*>(scores.ds + r * ds_stride<bf16>);
    const std::int64_t end = round_up(tile.strip_columns(r / tile_rows), w);
    Vec<float> row_lse[2], row_delta[2];
    for (std::int64_t i = 0; i < 2; ++i) {
      const bool exists = r + i < tile.rows;
      row_lse[i] = splat(exists ? lse[r + i] : infinity<float>);
      row_delta[i] = splat(exists ? delta[r + i] : 0.0F);
      for (std::int64_t c = exists ? tile.row_columns(r + i) : 0; c < end; ++c)
        s[i * ld + c] = -infinity<float>, dp[i * ld + c] = 0;
    }
    for (std::int64_t c = 0; c < end; c += w) {
      Vec<float> p[2], dscore[2];
#pragma GCC unroll 2
      for (std::int64_t i = 0; i < 2; ++i) {
        p[i] = exp(multiply_add<float>(splat(scale), load<float>(s + i * ld + c), -row_lse[i]));
        dscore[i] = p[i] * (load<float>(dp + i * ld + c) - row_delta[i]);
        const __m256bh rounded = _mm512_maskz_cvtneps_pbh(0xffff, dscore[i]);
        __builtin_memcpy(ds + 2 * i * ds_stride<bf16> + c, &rounded, sizeof rounded);
      }
      store<Bf16x2>(reinterpret_cast<Bf16x2*>(s + c), packed_bf16x2(p[0], p[1]));
      store<Bf16x2>(reinterpret_cast<Bf16x2*>(dp + c), packed_bf16x2(dscore[0], dscore[1]));
    }
  }
}
#endif

template <class T>
void backward_block(const Heads<T>& h, std::int64_t g, std::int64_t row, const KeySide<T>& key_side,
                    ScratchAllocator<T> scratch) {
  using A = Acc<T>;
  using Op = Operand<T>;
  const AttentionProblem<T>& p = h.p;
  const std::int64_t d = p.head_dim, rows = smaller(q_block, p.tokens - row);
  const Scales<T> scales(p.scale);
  const QueryRows<T> q = pack_query_rows<T>(h, {p.qkv + h.q(g, row), h.ld, rows, d}, scales.packed, scratch);
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
  }
  const TileB<Op> probabilities{reinterpret_cast<const Op*>(scores.s), transposed_stride<T>},
      dscores{reinterpret_cast<const Op*>(scores.dp), transposed_stride<T>}, dscores_rows{scores.ds, ds_stride<T>};
  for (std::int64_t key = 0; key < row + rows; key += kv_tile) {
    const CausalTile tile = h.tile(row, key);
    const A* const lse = p.lse + h.lse(g) + row;
    matmul_qkt<Op>(tile, {q.a, h.row_operands}, key_side.keys_t + key * h.depth, h.depth, scores.s, score_stride<T>);
    matmul_qkt<Op>(tile, {dout.a, h.row_operands}, key_side.values_t + key * h.depth, h.depth, scores.dp,
                   score_stride<T>);
    if constexpr (has_dot_product<T>) softmax_backward_bf16x2(tile, scales.later, lse, delta, scores);
    else softmax_backward<T>(tile, lse, delta, scores);
    matmul_pt<Op>(tile, probabilities, dout.b, key_side.dv + key * h.width, h.width);
    matmul_pt<Op>(tile, dscores, q.b, key_side.dk + key * h.width, h.width);
    if (key == 0) matmul_pv<false, Op>(tile, dscores_rows, h.from_key(key_side.keys, key), dq, h.width);
    else matmul_pv<true, Op>(tile, dscores_rows, h.from_key(key_side.keys, key), dq, h.width);
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
  ScratchAllocator<T> scratch{workspace};
  const KeySide<T> key_side{.keys_t = scratch.take_operands(h.keys * h.depth),
                            .values_t = scratch.take_operands(h.keys * h.depth),
                            .keys = h.panels(scratch.take_operands(h.keys * h.row_operands)),
                            .dk = scratch.take(sums),
                            .dv = scratch.take(sums)};
  const Source<T> k{p.qkv + h.k(0), h.ld, p.tokens, d}, v{p.qkv + h.v(0), h.ld, p.tokens, d};
  pack_panels_transposed<T>(k, key_side.keys_t);
  pack_panels_transposed<T>(v, key_side.values_t);
  pack_panels<T>(k, key_side.keys);
  for (std::int64_t i = 0; i < sums; ++i) key_side.dk[i] = key_side.dv[i] = 0;
  // The same order for any number of threads: head by head, block by block.
  for (std::int64_t g = 0; g < h.group; ++g) {
    for (std::int64_t i = 0; i < h.blocks; ++i) backward_block(h, g, i * q_block, key_side, scratch);
  }
  const Acc<T> dk_scale = Scales<T>(p.scale).later;
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    T *const dk = p.dqkv + h.k(t), *const dv = p.dqkv + h.v(t);
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
