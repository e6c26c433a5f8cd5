// SPDX-License-Identifier: Apache-2.0
// Attention in fp32 without tensor cores: one warp per row, its lanes over a tile of 32 rows of the other side in
// shared memory. Slow and simple: for golden curves and gradient checks. Sums have one order, so equal calls give equal
// bits.
#include "kernels/cuda/attention_call.cuh"
#include "kernels/cuda/thread_group.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int warps = 8, threads = 32 * warps, tile = 32;
constexpr int max_columns = 8;  // per lane, of a row of 256 elements
using Call = AttentionCall<float>;

/// Shared memory: two tiles with rows one element longer than a head, so that a column spreads over 32 banks; then two
/// rows per warp.
struct Memory {
  float *left, *right, *own;
  int pitch, d;
  __device__ Memory(float* memory, int head_dim) : pitch(head_dim + 1), d(head_dim) {
    left = memory;
    right = left + tile * pitch;
    own = right + tile * pitch + static_cast<int>(threadIdx.x) / 32 * 2 * d;
  }
  static std::size_t bytes(std::int64_t head_dim) {
    return static_cast<std::size_t>(2 * tile * (head_dim + 1) + warps * 2 * head_dim) * sizeof(float);
  }
};

/// Loads rows [row, row + 32) of a head into a tile; zeros beyond the last.
__device__ void load_rows(float* to, const Memory& m, const HeadRowsOf<const float>& from, std::int64_t b,
                          std::int64_t head, std::int64_t row) {
  for (int i = static_cast<int>(threadIdx.x); i < tile * m.d; i += threads) {
    const int r = i / m.d, c = i % m.d;
    to[r * m.pitch + c] = row + r < from.tokens ? from.row(b, head, row + r)[c] : 0.0F;
  }
}
/// Loads one row into the warp's shared memory; it can be read after the next barrier.
__device__ void load_own(float* to, const Memory& m, const float* row, bool exists) {
  for (int c = static_cast<int>(threadIdx.x) % 32; c < m.d; c += 32) to[c] = exists ? row[c] : 0.0F;
}
__device__ float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int c = 0; c < n; ++c) sum = fmaf(a[c], b[c], sum);
  return sum;
}
/// out += Σ over lanes of weight·row, over the rows of a tile; a lane has columns lane, lane + 32, …
__device__ void add_rows(float (&out)[max_columns], float weight, const float* rows, const Memory& m, int lane) {
  for (int j = 0; j < tile; ++j) {
    const float w = __shfl_sync(0xffffffffu, weight, j);
#pragma unroll
    for (int i = 0; i < max_columns; ++i)
      if (lane + 32 * i < m.d) out[i] = fmaf(w, rows[j * m.pitch + lane + 32 * i], out[i]);
  }
}
__device__ void write_row(const float (&x)[max_columns], float factor, float* to, const Memory& m, int lane) {
#pragma unroll
  for (int i = 0; i < max_columns; ++i)
    if (lane + 32 * i < m.d) to[lane + 32 * i] = x[i] * factor;
}

/// The score of a query and a key.
template <bool Capped>
__device__ float score_of(const Call& c, const float* a, const float* b, int n) {
  if constexpr (Capped) return c.soft_cap.score(dot(a, b, n));
  else return dot(a, b, n) * c.scale;
}
/// For backward: the probability of a key, and the factor of the gradient of its score.
struct Weight {
  float p, slope;
};
template <bool Capped>
__device__ Weight weight_of(const Call& c, bool seen, const float* a, const float* b, int n, float lse) {
  if constexpr (Capped) {
    const float t = seen ? c.soft_cap.tanh(dot(a, b, n)) : 0.0F;
    return {seen ? expf(c.soft_cap.cap * t - lse) : 0.0F, fmaf(-t, t, 1.0F)};
  } else {
    return {seen ? expf(dot(a, b, n) * c.scale - lse) : 0.0F, 1.0F};
  }
}

template <bool Capped>
__global__ void __launch_bounds__(threads) forward_kernel(const Call c) {
  extern __shared__ float memory[];
  const Memory m(memory, static_cast<int>(c.map.head_dim));
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t head = blockIdx.y, b = blockIdx.z, kv_head = head / c.map.group(), tokens = c.map.tokens;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * warps, t = first + warp;
  const bool exists = t < tokens;
  const std::int64_t last = (first + warps < tokens ? first + warps : tokens) + c.map.offset,
                     from = first_seen(c.positions, c.map, b, exists ? t : tokens - 1), place = c.map.offset + t;
  load_own(m.own, m, c.q.row(b, head, exists ? t : 0), exists);
  // A sink is as a key whose value is zero.
  float out[max_columns] = {}, max = c.sinks ? c.sinks[head] : -INFINITY, sum = c.sinks ? 1.0F : 0.0F;
  for (std::int64_t key = first_seen(c.positions, c.map, b, first); key < last; key += tile) {
    __syncthreads();
    load_rows(m.left, m, c.k, b, kv_head, key);
    load_rows(m.right, m, c.v, b, kv_head, key);
    __syncthreads();
    const bool seen = key + lane <= place && key + lane >= from;
    const float score = seen ? score_of<Capped>(c, m.own, m.left + lane * m.pitch, m.d) : -INFINITY;
    const float now = fmaxf(max, warp_max(score)), base = now == -INFINITY ? 0.0F : now;
    const float p = expf(score - base), rescale = expf(max - base);
    sum = fmaf(sum, rescale, warp_sum(p));
    max = now;
#pragma unroll
    for (int i = 0; i < max_columns; ++i) out[i] *= rescale;
    add_rows(out, p, m.right, m, lane);
  }
  if (!exists) return;
  write_row(out, div(1.0F, sum), c.out + c.map.out(b, head, t), m, lane);
  if (c.lse && lane == 0) c.lse[c.map.lse(b, head, t)] = max + logf(sum);
}

template <bool Capped>
__global__ void __launch_bounds__(threads) query_kernel(const Call c) {
  extern __shared__ float memory[];
  const Memory m(memory, static_cast<int>(c.map.head_dim));
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t head = blockIdx.y, b = blockIdx.z, kv_head = head / c.map.group(), tokens = c.map.tokens;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * warps, t = first + warp;
  const bool exists = t < tokens;
  const std::int64_t last = (first + warps < tokens ? first + warps : tokens) + c.map.offset,
                     at = exists ? t : tokens - 1, place = c.map.offset + t;
  const std::int64_t from = first_seen(c.positions, c.map, b, at);
  const float lse = c.lse[c.map.lse(b, head, at)], delta = c.delta[c.map.lse(b, head, at)];
  float* const own_dout = m.own + m.d;
  load_own(m.own, m, c.q.row(b, head, at), exists);
  load_own(own_dout, m, c.dout + c.map.out(b, head, at), exists);
  float dq[max_columns] = {};
  for (std::int64_t key = first_seen(c.positions, c.map, b, first); key < last; key += tile) {
    __syncthreads();
    load_rows(m.left, m, c.k, b, kv_head, key);
    load_rows(m.right, m, c.v, b, kv_head, key);
    __syncthreads();
    const bool seen = key + lane <= place && key + lane >= from;
    const Weight w = weight_of<Capped>(c, seen, m.own, m.left + lane * m.pitch, m.d, lse);
    float ds = w.p * (dot(own_dout, m.right + lane * m.pitch, m.d) - delta);
    if constexpr (Capped) ds *= w.slope;
    add_rows(dq, ds, m.left, m, lane);
  }
  if (exists) write_row(dq, c.scale, c.dq.row(b, head, t), m, lane);
}

template <bool Capped>
__global__ void __launch_bounds__(threads) key_kernel(const Call c) {
  extern __shared__ float memory[];
  const Memory m(memory, static_cast<int>(c.map.head_dim));
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t kv_head = blockIdx.y, b = blockIdx.z, tokens = c.map.tokens, keys = c.map.keys,
                     group = c.map.group(), offset = c.map.offset;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * warps, t = first + warp;
  const std::int64_t last_key = first + warps < keys ? first + warps - 1 : keys - 1;
  const bool exists = t < keys;
  float* const own_value = m.own + m.d;
  load_own(m.own, m, c.k.row(b, kv_head, exists ? t : 0), exists);
  load_own(own_value, m, c.v.row(b, kv_head, exists ? t : 0), exists);
  const HeadRowsOf<const float> dout{c.dout, c.map.out_stride(), tokens, c.map.head_dim};
  float dk[max_columns] = {}, dv[max_columns] = {};
  for (std::int64_t g = 0; g < group; ++g) {
    const std::int64_t head = kv_head * group + g;
    for (std::int64_t query = first > offset ? first - offset : 0; query < tokens; query += tile) {
      if (first_seen(c.positions, c.map, b, query) > last_key) break;  // later documents begin after these keys
      __syncthreads();
      load_rows(m.left, m, c.q, b, head, query);
      load_rows(m.right, m, dout, b, head, query);
      __syncthreads();
      const std::int64_t at = query + lane < tokens ? query + lane : tokens - 1;
      const bool seen =
          exists && query + lane < tokens && t <= offset + at && t >= first_seen(c.positions, c.map, b, at);
      const std::int64_t row = c.map.lse(b, head, at);
      const Weight w = weight_of<Capped>(c, seen, m.own, m.left + lane * m.pitch, m.d, c.lse[row]);
      float ds = w.p * (dot(own_value, m.right + lane * m.pitch, m.d) - c.delta[row]);
      if constexpr (Capped) ds *= w.slope;
      add_rows(dv, w.p, m.right, m, lane);
      add_rows(dk, ds, m.left, m, lane);
    }
  }
  if (!exists) return;
  write_row(dk, c.scale, c.dk.row(b, kv_head, t), m, lane);
  write_row(dv, 1.0F, c.dv.row(b, kv_head, t), m, lane);
}

template <class Kernel>
void launch(Kernel kernel, const Call& c, std::int64_t rows, std::int64_t heads, const char* name,
            cudaStream_t stream) {
  const std::size_t bytes = Memory::bytes(c.map.head_dim);
  allow_shared(kernel, bytes);
  const dim3 grid(blocks_for(rows, warps), static_cast<unsigned>(heads), static_cast<unsigned>(c.map.batch));
  kernel<<<grid, threads, bytes, stream>>>(c);
  check_launch(name);
}

}  // namespace

void launch_plain_forward(const AttentionCall<float>& call, cudaStream_t stream) {
  launch(call.soft_cap.cap > 0 ? forward_kernel<true> : forward_kernel<false>, call, call.map.tokens, call.map.heads,
         "attention_forward", stream);
}

void launch_plain_backward(const AttentionCall<float>& call, cudaStream_t stream) {
  const bool has_cap = call.soft_cap.cap > 0;
  launch(has_cap ? key_kernel<true> : key_kernel<false>, call, call.map.keys, call.map.kv_heads,
         "attention_backward keys", stream);
  launch(has_cap ? query_kernel<true> : query_kernel<false>, call, call.map.tokens, call.map.heads,
         "attention_backward queries", stream);
}

}  // namespace tessera::kernels::cuda
