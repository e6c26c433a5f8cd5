// SPDX-License-Identifier: Apache-2.0
// Attention backward on tensor cores (FlashAttention-2, Alg. 2) without atomics: one kernel loops over queries for a
// tile of keys and writes dK and dV, another loops over keys for a tile of queries and writes dQ; both recompute the
// scores. No sum crosses warps: the results of a warp's 16 rows stay in its registers, so equal calls give equal bits.
#include "kernels/cuda/attention_call.cuh"
#include "kernels/cuda/mma.cuh"

namespace tessera::kernels::cuda {
namespace {

/// Rows of a streamed tile processed at once, limited by registers.
template <int D>
constexpr int rows_at_once = D > 128 ? 16 : 32;

template <class T>
struct Sides {
  RowsOf<T> q, k, v, dout;
};
template <class T>
__device__ __forceinline__ Sides<T> sides_of(const AttentionCall<T>& c, std::int64_t b, std::int64_t head,
                                             std::int64_t kv_head) {
  const int d = static_cast<int>(c.map.head_dim);
  const std::int64_t tokens = c.map.tokens, stride = c.map.stride();
  return {{c.qkv + c.map.q(b, head, 0), stride, tokens, d, c.vectors},
          {c.qkv + c.map.k(b, kv_head, 0), stride, tokens, d, c.vectors},
          {c.qkv + c.map.v(b, kv_head, 0), stride, tokens, d, c.vectors},
          {c.dout + c.map.out(b, head, 0), c.map.out_stride(), tokens, d, c.vectors}};
}

/// Stores rows of accumulators times factor to rows [row, …) of a head, columns from 8·first_column.
template <int Columns, class T>
__device__ __forceinline__ void write_rows(const float (&x)[Columns][4], float factor, T* head, std::int64_t stride,
                                           std::int64_t row, int first_column, const AttentionCall<T>& c, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t t = row + c_row(lane, 2 * half);
    if (t >= c.map.tokens) continue;
#pragma unroll
    for (int n = 0; n < Columns; ++n) {
      const int column = 8 * (first_column + n) + c_column(lane, 0);
      const float low = x[n][2 * half] * factor, high = x[n][2 * half + 1] * factor;
      T* const to = head + t * stride + column;
      if (c.vectors) {
        if (column < c.map.head_dim) *reinterpret_cast<std::uint32_t*>(to) = packed<T>(low, high);
      } else {
        if (column < c.map.head_dim) to[0] = rounded<T>(low);
        if (column + 1 < c.map.head_dim) to[1] = rounded<T>(high);
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

/// Keys × queries: S becomes P, dP becomes dS. Rows are keys [key, +16), columns queries [query, …) with statistics
/// from `at`.
template <int Tiles>
__device__ __forceinline__ void softmax_backward(float (&s)[Tiles][4], float (&dp)[Tiles][4], const QueryStatistics& of,
                                                 int at, std::int64_t key, std::int64_t query, float scale_log2,
                                                 int lane) {
#pragma unroll
  for (int j = 0; j < Tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * j + c_column(lane, i);
      const std::int64_t k = key + c_row(lane, i);
      const bool seen = k <= query + column && k >= of.from[at + column];
      const float p = seen ? exp2f(fmaf(s[j][i], scale_log2, -of.lse[at + column])) : 0.0F;
      s[j][i] = p;
      dp[j][i] = p * (dp[j][i] - of.delta[at + column]);
    }
}

/// Columns of dK and dV per block: all, or half if registers do not suffice.
template <int D>
constexpr int own_columns = D > 128 ? 128 : D;

template <int D, class T>
__global__ void __launch_bounds__(tile_threads, 1) key_kernel(const AttentionCall<T> c) {
  constexpr int columns = own_columns<D> / 8, parts = D / own_columns<D>, streamed = streamed_rows<D>;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const k_tile = reinterpret_cast<T*>(memory);
  T *const v_tile = k_tile + block_m * D, *const q_tile = v_tile + block_m * D, *const do_tile = q_tile + streamed * D;
  auto& statistics = *reinterpret_cast<QueryStatistics*>(do_tile + streamed * D);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_column = static_cast<int>(blockIdx.x % parts) * columns;
  const std::int64_t first = blockIdx.x / parts * static_cast<std::int64_t>(block_m), kv_head = blockIdx.y,
                     b = blockIdx.z;
  const std::int64_t key = first + warp * warp_m, tokens = c.map.tokens, group = c.map.group();
  const std::int64_t last_key = first + block_m < tokens ? first + block_m - 1 : tokens - 1;
  const float scale_log2 = c.scale * log2_e;
  float dk[columns][4] = {}, dv[columns][4] = {};
  {
    const Sides<T> sides = sides_of(c, b, kv_head * group, kv_head);
    load_tile<D>(k_tile, sides.k, first);
    load_tile<D>(v_tile, sides.v, first);
  }
  for (std::int64_t g = 0; g < group; ++g) {
    const std::int64_t head = kv_head * group + g;
    const Sides<T> sides = sides_of(c, b, head, kv_head);
    for (std::int64_t query = first; query < tokens; query += streamed) {
      if (first_seen(c.positions, c.map, b, query) > last_key) break;  // later documents begin after these keys
      __syncthreads();                                                 // the previous tile has been read
      load_tile<D, streamed>(q_tile, sides.q, query);
      load_tile<D, streamed>(do_tile, sides.dout, query);
      commit_copies();
      load_statistics<D>(statistics, c, b, head, query);
      await_copies<0>();
      __syncthreads();
#pragma unroll 1
      for (int at = 0; at < streamed; at += rows_at_once<D>) {
        float s[rows_at_once<D> / 8][4] = {}, dp[rows_at_once<D> / 8][4] = {};
        mma_qkt<D>(s, k_tile, warp * warp_m, q_tile, at, lane);
        mma_qkt<D>(dp, v_tile, warp * warp_m, do_tile, at, lane);
        softmax_backward(s, dp, statistics, at, key, query + at, scale_log2, lane);
        mma_pv<D>(dv, s, do_tile, at, first_column, lane);
        mma_pv<D>(dk, dp, q_tile, at, first_column, lane);
      }
    }
  }
  write_rows(dk, c.scale, c.dqkv + c.map.k(b, kv_head, 0), c.map.stride(), key, first_column, c, lane);
  write_rows(dv, 1.0F, c.dqkv + c.map.v(b, kv_head, 0), c.map.stride(), key, first_column, c, lane);
}

/// Queries × keys: S becomes dS. Rows are the warp's queries; a lane holds the statistics of its two rows.
struct OwnRows {
  float lse[2], delta[2];
  std::int64_t from[2];
};
template <int Tiles>
__device__ __forceinline__ void score_gradient(float (&s)[Tiles][4], const float (&dp)[Tiles][4], const OwnRows& of,
                                               std::int64_t row, std::int64_t key, float scale_log2, int lane) {
#pragma unroll
  for (int j = 0; j < Tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t k = key + 8 * j + c_column(lane, i);
      const bool seen = k <= row + c_row(lane, i) && k >= of.from[i / 2];
      const float p = seen ? exp2f(fmaf(s[j][i], scale_log2, -of.lse[i / 2])) : 0.0F;
      s[j][i] = p * (dp[j][i] - of.delta[i / 2]);
    }
}

template <int D, class T>
__global__ void __launch_bounds__(tile_threads, 1) query_kernel(const AttentionCall<T> c) {
  constexpr int streamed = streamed_rows<D>;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T *const do_tile = q_tile + block_m * D, *const k_tile = do_tile + block_m * D, *const v_tile = k_tile + streamed * D;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t block = static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x, head = blockIdx.y, b = blockIdx.z;
  const std::int64_t first = block * block_m, row = first + warp * warp_m, tokens = c.map.tokens;
  const std::int64_t last = first + block_m < tokens ? first + block_m : tokens;
  const Sides<T> sides = sides_of(c, b, head, head / c.map.group());
  OwnRows own;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t t = row + c_row(lane, 2 * half);
    const bool exists = t < tokens;
    const std::int64_t at = c.map.lse(b, head, exists ? t : 0);
    own.lse[half] = exists ? c.lse[at] * log2_e : INFINITY;
    own.delta[half] = exists ? c.delta[at] : 0.0F;
    own.from[half] = first_seen(c.positions, c.map, b, exists ? t : tokens - 1);
  }
  const std::int64_t start = first_seen(c.positions, c.map, b, first) / streamed * streamed;
  const float scale_log2 = c.scale * log2_e;
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
    for (int at = 0; at < streamed; at += rows_at_once<D>) {
      float s[rows_at_once<D> / 8][4] = {}, dp[rows_at_once<D> / 8][4] = {};
      mma_qkt<D>(s, q_tile, warp * warp_m, k_tile, at, lane);
      mma_qkt<D>(dp, do_tile, warp * warp_m, v_tile, at, lane);
      score_gradient(s, dp, own, row, key + at, scale_log2, lane);
      mma_pv<D>(dq, s, k_tile, at, 0, lane);
    }
  }
  write_rows(dq, c.scale, c.dqkv + c.map.q(b, head, 0), c.map.stride(), row, 0, c, lane);
}

template <int D, class T>
void launch(const AttentionCall<T>& c, cudaStream_t stream) {
  constexpr std::size_t tiles = 2 * (block_m + streamed_rows<D>)*D * sizeof(T),
                        with_statistics = tiles + sizeof(QueryStatistics);
  static_assert(with_statistics <= least_shared_bytes);
  const unsigned blocks = blocks_for(c.map.tokens, block_m), batch = static_cast<unsigned>(c.map.batch);
  allow_shared(key_kernel<D, T>, with_statistics);
  key_kernel<D, T><<<dim3(blocks * (D / own_columns<D>), static_cast<unsigned>(c.map.kv_heads), batch), tile_threads,
                     with_statistics, stream>>>(c);
  check_launch("attention_backward keys");
  allow_shared(query_kernel<D, T>, tiles);
  query_kernel<D, T><<<dim3(blocks, static_cast<unsigned>(c.map.heads), batch), tile_threads, tiles, stream>>>(c);
  check_launch("attention_backward queries");
}

}  // namespace

template <class T>
void launch_tensor_backward(const AttentionCall<T>& call, cudaStream_t stream) {
  if (call.map.head_dim <= 64) launch<64>(call, stream);
  else if (call.map.head_dim <= 128) launch<128>(call, stream);
  else launch<256>(call, stream);
}
template void launch_tensor_backward(const AttentionCall<bf16>& call, cudaStream_t stream);
template void launch_tensor_backward(const AttentionCall<f16>& call, cudaStream_t stream);

}  // namespace tessera::kernels::cuda
