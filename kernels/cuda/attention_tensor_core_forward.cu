// SPDX-License-Identifier: Apache-2.0
// Attention forward on tensor cores (FlashAttention-2, Dao 2023, Alg. 1): a block computes 64 queries of one head, a
// warp 16 of them. Keys and values have one tile each: values are loaded while scores are computed, the next keys while
// outputs are.
#include "kernels/cuda/attention_call.cuh"

namespace tessera::kernels::cuda {
namespace {

/// State of a warp's 16 rows; a lane has rows lane/4 and lane/4 + 8.
template <int D>
struct Rows {
  float out[D / 8][4] = {};
  float max[2], sum[2];  // of raw scores; Σ exp, this lane's columns only
};

/// Masks scores with -inf.
template <int Tiles>
__device__ __forceinline__ void mask(float (&s)[Tiles][4], int place, int key, const int (&from)[2], int lane) {
#pragma unroll
  for (int j = 0; j < Tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = key + 8 * j + c_column(lane, i);
      if (at > place + c_row(lane, i) || at < from[i / 2]) s[j][i] = -INFINITY;
    }
}

template <int Tiles>
__device__ __forceinline__ void cap_scores(float (&s)[Tiles][4], const SoftCap& cap) {
#pragma unroll
  for (int j = 0; j < Tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[j][i] = cap.score(s[j][i]);
}

/// Online softmax: S becomes exp(scale·(S - running maximum)); updates the sums and rescales the output to the new
/// maximum.
template <int D, int Tiles>
__device__ __forceinline__ void online_softmax(Rows<D>& rows, float (&s)[Tiles][4], float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float tile_max = rows.max[half];
#pragma unroll
    for (int j = 0; j < Tiles; ++j) tile_max = fmaxf(tile_max, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 1));
    tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 2));
    // A row without a key so far: subtract 0, because -inf - -inf is NaN.
    const float base = tile_max == -INFINITY ? 0.0F : tile_max * scale_log2;
    const float rescale = exp2f(rows.max[half] * scale_log2 - base);
    rows.max[half] = tile_max;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < Tiles; ++j)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[j][i] = exp2f(fmaf(s[j][i], scale_log2, -base));
        sum += s[j][i];
      }
    rows.sum[half] = fmaf(rows.sum[half], rescale, sum);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      rows.out[n][2 * half] *= rescale;
      rows.out[n][2 * half + 1] *= rescale;
    }
  }
}

/// `scale`: of raw scores.
template <int D, class T>
__device__ __forceinline__ void write_rows(const AttentionCall<T>& c, Rows<D>& rows, float scale, std::int64_t b,
                                           std::int64_t head, std::int64_t row, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const std::int64_t t = row + c_row(lane, 2 * half);
    if (t >= c.map.tokens) continue;
    float lse = fmaf(rows.max[half], scale, logf(sum)), inverse = div(1.0F, sum);
    if (c.sinks) {  // as a last key, whose value is zero
      const float sink = to_float(c.sinks[head]), max = rows.max[half] * scale, most = fmaxf(max, sink);
      const float own = expf(max - most), all = fmaf(sum, own, expf(sink - most));
      inverse = div(own, all);
      lse = most + logf(all);
    }
    T* const out = c.out + c.map.out(b, head, t);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int column = 8 * n + c_column(lane, 0);
      const float x = rows.out[n][2 * half] * inverse, y = rows.out[n][2 * half + 1] * inverse;
      if (c.vectors) {
        if (column < c.map.head_dim) *reinterpret_cast<std::uint32_t*>(out + column) = packed<T>(x, y);
      } else {
        if (column < c.map.head_dim) out[column] = rounded<T>(x);
        if (column + 1 < c.map.head_dim) out[column + 1] = rounded<T>(y);
      }
    }
    if (c.lse && lane % 4 == 0) c.lse[c.map.lse(b, head, t)] = lse;
  }
}

template <int D, bool Capped, class T>
__global__ void __launch_bounds__(tile_threads, D > 128 ? 1 : 2) forward_kernel(const AttentionCall<T> c) {
  constexpr int streamed = streamed_rows<D>;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const k_tile = q_tile + block_m * D;
  T* const v_tile = k_tile + streamed * D;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  // The longest rows first: the work of a block grows with its index.
  const std::int64_t block = static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x, head = blockIdx.y, b = blockIdx.z;
  const std::int64_t first = block * block_m, row = first + warp * warp_m, tokens = c.map.tokens,
                     kv_head = head / c.map.group(), place = c.map.offset + row;
  const RowsOf<T> q = rows_of(c, c.q, b, head), k = rows_of(c, c.k, b, kv_head), v = rows_of(c, c.v, b, kv_head);
  const std::int64_t last = c.map.offset + (first + block_m < tokens ? first + block_m : tokens);  // the end of keys
  int from[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t t = row + c_row(lane, 2 * half);
    from[half] = static_cast<int>(first_seen(c.positions, c.map, b, t < tokens ? t : tokens - 1));
  }
  // The first query of the block attends to the earliest key: first_seen never falls.
  const std::int64_t start = first_seen(c.positions, c.map, b, first) / streamed * streamed;
  Rows<D> rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) rows.max[half] = -INFINITY, rows.sum[half] = 0;
  load_tile<D>(q_tile, q, first);
  load_tile<D, streamed>(k_tile, k, start);
  commit_copies();
  const float scale = Capped ? 1.0F : c.scale, scale_log2 = scale * log2_e;
  for (std::int64_t key = start; key < last; key += streamed) {
    await_copies<0>();
    __syncthreads();  // keys are loaded; values of the previous iteration have been read
    load_tile<D, streamed>(v_tile, v, key);
    commit_copies();
    float s[streamed / 8][4] = {};
    mma_qkt<D>(s, q_tile, warp * warp_m, k_tile, 0, lane);
    await_copies<0>();
    __syncthreads();  // values are loaded; keys have been read
    if (key + streamed < last) load_tile<D, streamed>(k_tile, k, key + streamed);
    commit_copies();
    if constexpr (Capped) cap_scores(s, c.soft_cap);
    if (key + streamed > place || c.has_first()) mask(s, static_cast<int>(place), static_cast<int>(key), from, lane);
    online_softmax(rows, s, scale_log2);
    mma_pv<D>(rows.out, s, v_tile, 0, 0, lane);
  }
  write_rows(c, rows, scale, b, head, row, lane);
}

template <int D, bool Capped, class T>
void launch(const AttentionCall<T>& c, cudaStream_t stream) {
  constexpr std::size_t bytes = (block_m + 2 * streamed_rows<D>)*D * sizeof(T);
  static_assert(bytes <= least_shared_bytes);
  allow_shared(forward_kernel<D, Capped, T>, bytes);
  const dim3 grid(blocks_for(c.map.tokens, block_m), static_cast<unsigned>(c.map.heads),
                  static_cast<unsigned>(c.map.batch));
  forward_kernel<D, Capped, T><<<grid, tile_threads, bytes, stream>>>(c);
  check_launch("attention_forward");
}

template <bool Capped, class T>
void launch_width(const AttentionCall<T>& call, cudaStream_t stream) {
  if (call.map.head_dim <= 64) launch<64, Capped>(call, stream);
  else if (call.map.head_dim <= 128) launch<128, Capped>(call, stream);
  else launch<256, Capped>(call, stream);
}

}  // namespace

template <class T>
void launch_tensor_forward(const AttentionCall<T>& call, cudaStream_t stream) {
  if (call.soft_cap.cap > 0) launch_width<true>(call, stream);
  else launch_width<false>(call, stream);
}
template void launch_tensor_forward(const AttentionCall<bf16>& call, cudaStream_t stream);
template void launch_tensor_forward(const AttentionCall<f16>& call, cudaStream_t stream);

}  // namespace tessera::kernels::cuda
