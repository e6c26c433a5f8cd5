// SPDX-License-Identifier: Apache-2.0
// Attention backward on tensor cores (FlashAttention-2, Alg. 2) without atomics: one kernel loops over queries for a
// tile of keys and writes dK and dV, another loops over keys for a tile of queries and writes dQ; both recompute the
// scores. No sum crosses warps: the results of a warp's 16 rows stay in its registers, so equal calls give equal bits.
#include "kernels/cuda/attention_call.cuh"

namespace tessera::kernels::cuda {
namespace {

/// Rows of a streamed tile processed at once, limited by registers.
template <int D, bool Capped>
constexpr int rows_at_once = D > 128 || (D > 64 && Capped) ? 16 : 32;

template <class T>
struct Sides {
  RowsOf<T> q, k, v, dout;
};
template <class T>
__device__ __forceinline__ Sides<T> sides_of(const AttentionCall<T>& c, std::int64_t b, std::int64_t head,
                                             std::int64_t kv_head) {
  const HeadRowsOf<const T> dout{c.dout, c.map.out_stride(), c.map.tokens, c.map.head_dim};
  return {rows_of(c, c.q, b, head), rows_of(c, c.k, b, kv_head), rows_of(c, c.v, b, kv_head),
          rows_of(c, dout, b, head)};
}

/// Where the accumulators of a warp go: a head of dq, dk or dv, its rows from `row` and its columns from
/// 8·first_column on.
template <class T>
struct Target {
  RowsOf<T> rows;
  T* head;
  std::int64_t row;
  int first_column;
};
template <class T>
__device__ __forceinline__ Target<T> target_of(const AttentionCall<T>& c, const HeadRowsOf<T>& of, std::int64_t b,
                                               std::int64_t head, std::int64_t row, int first_column) {
  return {rows_of(c, {of.data, of.pitch, of.tokens, of.head_dim}, b, head), of.row(b, head, 0), row, first_column};
}

/// Stores accumulators times factor.
template <int Columns, class T>
__device__ __forceinline__ void write_rows(const float (&x)[Columns][4], float factor, const Target<T>& target,
                                           int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t t = target.row + c_row(lane, 2 * half);
    if (t >= target.rows.rows) continue;
#pragma unroll
    for (int n = 0; n < Columns; ++n) {
      const int column = 8 * (target.first_column + n) + c_column(lane, 0);
      const float low = x[n][2 * half] * factor, high = x[n][2 * half + 1] * factor;
      T* const to = target.head + t * target.rows.stride + column;
      if (target.rows.vectors) {
        if (column < target.rows.head_dim) *reinterpret_cast<std::uint32_t*>(to) = packed<T>(low, high);
      } else {
        if (column < target.rows.head_dim) to[0] = rounded<T>(low);
        if (column + 1 < target.rows.head_dim) to[1] = rounded<T>(high);
      }
    }
  }
}

/// Per query of a streamed tile: log-sum-exp (times log2 e), delta, and the first key seen.
struct QueryStatistics {
  float lse[block_m], delta[block_m];
  std::int32_t from[block_m];
};
template <int D, class T>
__device__ __forceinline__ void load_statistics(QueryStatistics& to, const AttentionCall<T>& c, std::int64_t b,
                                                std::int64_t head, std::int64_t row) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= streamed_rows<D>) return;
  const bool exists = row + i < c.map.tokens;
  const std::int64_t at = c.map.lse(b, head, exists ? row + i : 0);
  to.lse[i] = exists ? c.lse[at] * log2_e : INFINITY;  // exp(-infinity) is 0: rows out of bounds add nothing
  to.delta[i] = exists ? c.delta[at] : 0.0F;
  to.from[i] = static_cast<std::int32_t>(exists ? first_seen(c.positions, c.map, b, row + i) : 0);
}

/// Scores are exponentiated as exp2(x·log2): x raw or, with a cap, its t.
struct ScoreRule {
  float log2;
  SoftCap cap;
};
template <bool Capped, class T>
__device__ __forceinline__ ScoreRule score_rule(const AttentionCall<T>& c) {
  return {(Capped ? c.soft_cap.cap : c.scale) * log2_e, c.soft_cap};
}

/// P from a raw score, and dS from dP; 0 where a key is not seen.
template <bool Capped>
__device__ __forceinline__ void score_backward(float& s, float& dp, const ScoreRule& rule, bool seen, float lse,
                                               float delta) {
  if constexpr (Capped) s = rule.cap.tanh(s);
  const float p = seen ? exp2f(fmaf(s, rule.log2, -lse)) : 0.0F;
  dp = p * (dp - delta);
  if constexpr (Capped) dp *= fmaf(-s, s, 1.0F);
  s = p;
}

/// Keys × queries: S becomes P, dP becomes dS. Rows are keys [key, +16), columns queries with places [place, …) and
/// statistics from `at`.
template <bool Capped, int Tiles>
__device__ __forceinline__ void softmax_backward(float (&s)[Tiles][4], float (&dp)[Tiles][4], const QueryStatistics& of,
                                                 int at, int key, int place, const ScoreRule& rule, int lane) {
#pragma unroll
  for (int j = 0; j < Tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * j + c_column(lane, i);
      const int k = key + c_row(lane, i);
      const bool seen = k <= place + column && k >= of.from[at + column];
      score_backward<Capped>(s[j][i], dp[j][i], rule, seen, of.lse[at + column], of.delta[at + column]);
    }
}

/// Columns of dK and dV per block: all, or a part if registers do not suffice.
template <int D, bool Capped>
constexpr int own_columns = D <= 128 ? D
                            : Capped ? 64
                                     : 128;

template <int D, bool Capped, class T>
__global__ void __launch_bounds__(tile_threads, 1) key_kernel(const AttentionCall<T> c) {
  constexpr int columns = own_columns<D, Capped> / 8, parts = D / own_columns<D, Capped>, streamed = streamed_rows<D>;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const k_tile = reinterpret_cast<T*>(memory);
  T *const v_tile = k_tile + block_m * D, *const q_tile = v_tile + block_m * D, *const do_tile = q_tile + streamed * D;
  auto& statistics = *reinterpret_cast<QueryStatistics*>(do_tile + streamed * D);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_column = static_cast<int>(blockIdx.x % parts) * columns;
  const std::int64_t first = blockIdx.x / parts * static_cast<std::int64_t>(block_m), kv_head = blockIdx.y,
                     b = blockIdx.z;
  const std::int64_t key = first + warp * warp_m, tokens = c.map.tokens, group = c.map.group(), offset = c.map.offset;
  const std::int64_t last_key = first + block_m < c.map.keys ? first + block_m - 1 : c.map.keys - 1;
  const ScoreRule rule = score_rule<Capped>(c);
  float dk[columns][4] = {}, dv[columns][4] = {};
  {
    const Sides<T> sides = sides_of(c, b, kv_head * group, kv_head);
    load_tile<D>(k_tile, sides.k, first);
    load_tile<D>(v_tile, sides.v, first);
  }
  for (std::int64_t g = 0; g < group; ++g) {
    const std::int64_t head = kv_head * group + g;
    const Sides<T> sides = sides_of(c, b, head, kv_head);
    for (std::int64_t query = first > offset ? first - offset : 0; query < tokens; query += streamed) {
      if (first_seen(c.positions, c.map, b, query) > last_key) break;  // no later query sees these keys
      __syncthreads();                                                 // the previous tile has been read
      load_tile<D, streamed>(q_tile, sides.q, query);
      load_tile<D, streamed>(do_tile, sides.dout, query);
      commit_copies();
      load_statistics<D>(statistics, c, b, head, query);
      await_copies<0>();
      __syncthreads();
#pragma unroll 1
      for (int at = 0; at < streamed; at += rows_at_once<D, Capped>) {
        float s[rows_at_once<D, Capped> / 8][4] = {}, dp[rows_at_once<D, Capped> / 8][4] = {};
        mma_qkt<D>(s, k_tile, warp * warp_m, q_tile, at, lane);
        mma_qkt<D>(dp, v_tile, warp * warp_m, do_tile, at, lane);
        softmax_backward<Capped>(s, dp, statistics, at, static_cast<int>(key), static_cast<int>(offset + query) + at,
                                 rule, lane);
        mma_pv<D>(dv, s, do_tile, at, first_column, lane);
        mma_pv<D>(dk, dp, q_tile, at, first_column, lane);
      }
    }
  }
  write_rows(dk, c.scale, target_of(c, c.dk, b, kv_head, key, first_column), lane);
  write_rows(dv, 1.0F, target_of(c, c.dv, b, kv_head, key, first_column), lane);
}

/// Queries × keys: S becomes dS. Rows are the warp's queries; a lane holds the statistics of its two rows.
struct OwnRows {
  float lse[2], delta[2];
  int from[2];
};
template <bool Capped, int Tiles>
__device__ __forceinline__ void score_gradient(float (&s)[Tiles][4], float (&dp)[Tiles][4], const OwnRows& of,
                                               int place, int key, const ScoreRule& rule, int lane) {
#pragma unroll
  for (int j = 0; j < Tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = key + 8 * j + c_column(lane, i);
      const bool seen = k <= place + c_row(lane, i) && k >= of.from[i / 2];
      score_backward<Capped>(s[j][i], dp[j][i], rule, seen, of.lse[i / 2], of.delta[i / 2]);
      s[j][i] = dp[j][i];
    }
}

template <int D, bool Capped, class T>
__global__ void __launch_bounds__(tile_threads, 1) query_kernel(const AttentionCall<T> c) {
  constexpr int streamed = streamed_rows<D>;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T *const do_tile = q_tile + block_m * D, *const k_tile = do_tile + block_m * D, *const v_tile = k_tile + streamed * D;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t block = static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x, head = blockIdx.y, b = blockIdx.z;
  const std::int64_t first = block * block_m, row = first + warp * warp_m, tokens = c.map.tokens,
                     place = c.map.offset + row;
  const std::int64_t last = c.map.offset + (first + block_m < tokens ? first + block_m : tokens);
  const Sides<T> sides = sides_of(c, b, head, head / c.map.group());
  OwnRows own;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t t = row + c_row(lane, 2 * half);
    const bool exists = t < tokens;
    const std::int64_t at = c.map.lse(b, head, exists ? t : 0);
    own.lse[half] = exists ? c.lse[at] * log2_e : INFINITY;
    own.delta[half] = exists ? c.delta[at] : 0.0F;
    own.from[half] = static_cast<int>(first_seen(c.positions, c.map, b, exists ? t : tokens - 1));
  }
  const std::int64_t start = first_seen(c.positions, c.map, b, first) / streamed * streamed;
  const ScoreRule rule = score_rule<Capped>(c);
  float dq[D / 8][4] = {};
  load_tile<D>(q_tile, sides.q, first);
  load_tile<D>(do_tile, sides.dout, first);
  for (std::int64_t key = start; key < last; key += streamed) {
    __syncthreads();  // the previous tile has been read
    load_tile<D, streamed>(k_tile, sides.k, key);
    load_tile<D, streamed>(v_tile, sides.v, key);
    commit_copies();
    await_copies<0>();
    __syncthreads();
#pragma unroll 1
    for (int at = 0; at < streamed; at += rows_at_once<D, Capped>) {
      float s[rows_at_once<D, Capped> / 8][4] = {}, dp[rows_at_once<D, Capped> / 8][4] = {};
      mma_qkt<D>(s, q_tile, warp * warp_m, k_tile, at, lane);
      mma_qkt<D>(dp, do_tile, warp * warp_m, v_tile, at, lane);
      score_gradient<Capped>(s, dp, own, static_cast<int>(place), static_cast<int>(key) + at, rule, lane);
      mma_pv<D>(dq, s, k_tile, at, 0, lane);
    }
  }
  write_rows(dq, c.scale, target_of(c, c.dq, b, head, row, 0), lane);
}

template <int D, bool Capped, class T>
void launch(const AttentionCall<T>& c, cudaStream_t stream) {
  constexpr std::size_t tiles = 2 * (block_m + streamed_rows<D>)*D * sizeof(T),
                        with_statistics = tiles + sizeof(QueryStatistics);
  static_assert(with_statistics <= least_shared_bytes);
  const auto batch = static_cast<unsigned>(c.map.batch);
  const dim3 keys(blocks_for(c.map.keys, block_m) * (D / own_columns<D, Capped>), static_cast<unsigned>(c.map.kv_heads),
                  batch),
      queries(blocks_for(c.map.tokens, block_m), static_cast<unsigned>(c.map.heads), batch);
  allow_shared(key_kernel<D, Capped, T>, with_statistics);
  key_kernel<D, Capped, T><<<keys, tile_threads, with_statistics, stream>>>(c);
  check_launch("attention_backward keys");
  allow_shared(query_kernel<D, Capped, T>, tiles);
  query_kernel<D, Capped, T><<<queries, tile_threads, tiles, stream>>>(c);
  check_launch("attention_backward queries");
}

template <bool Capped, class T>
void launch_width(const AttentionCall<T>& call, cudaStream_t stream) {
  if (call.map.head_dim <= 64) launch<64, Capped>(call, stream);
  else if (call.map.head_dim <= 128) launch<128, Capped>(call, stream);
  else launch<256, Capped>(call, stream);
}

}  // namespace

template <class T>
void launch_tensor_backward(const AttentionCall<T>& call, cudaStream_t stream) {
  if (call.soft_cap.cap > 0) launch_width<true>(call, stream);
  else launch_width<false>(call, stream);
}
template void launch_tensor_backward(const AttentionCall<bf16>& call, cudaStream_t stream);
template void launch_tensor_backward(const AttentionCall<f16>& call, cudaStream_t stream);

}  // namespace tessera::kernels::cuda
