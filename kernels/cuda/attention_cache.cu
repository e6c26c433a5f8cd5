// SPDX-License-Identifier: Apache-2.0
// Attention with a KV cache, for generation (flash decoding): the keys of a row are split over blocks, each of which
// reads its tiles of keys and values once for the query heads that share them; a second kernel merges the blocks'
// softmaxes in a fixed order. Bound by reading keys and values.
#include "kernels/attention_cache.hpp"

#include "kernels/cuda/attention_call.cuh"
#include "kernels/cuda/attention_splits.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int split_warps = 4, split_threads = 32 * split_warps;

template <class T>
struct CacheCall {
  HeadMap map;
  std::int64_t capacity;
  const std::int32_t* positions;  // (B, T), or null: first … first + T-1
  std::int64_t first = 0;
  bool rings = false;           // the cache may hold the last tokens of a row alone
  HeadRowsOf<const T> q, k, v;  // of the new tokens; q not to append
  T *keys, *values, *out = nullptr;
  float* lse = nullptr;  // (B, nh, T), or null
  float scale = 1;
  SoftCap soft_cap;
  const T* sinks = nullptr;  // (nh), or null
  int splits = 1;
  float* partial = nullptr;  // (rows, heads, splits, d + 2): unnormalized output, maximum, sum
  bool appends = false;      // one token per row: its key and value are in qkv, and are written to the cache
  bool vectors = false;      // every row of a head begins at a multiple of 16 bytes
  /// Offset of the keys of a row's head.
  TESSERA_HD std::int64_t cached(std::int64_t b, std::int64_t kv_head) const {
    return (b * map.kv_heads + kv_head) * capacity * map.head_dim;
  }
  TESSERA_HD std::int64_t position(std::int64_t row) const {
    return positions ? positions[row] : first + row % map.tokens;
  }
  /// The keys [begin, end) that a row's query sees.
  TESSERA_HD std::int64_t end(std::int64_t row) const {
    const std::int64_t asked = position(row);
    return rings || asked < capacity ? asked + 1 : capacity;
  }
  TESSERA_HD std::int64_t begin(std::int64_t row) const {
    const std::int64_t oldest = end(row) - map.window;
    return map.window > 0 && oldest > 0 ? oldest : 0;
  }
  TESSERA_HD float* partial_of(std::int64_t row, std::int64_t head, std::int64_t split) const {
    return partial + ((row * map.heads + head) * splits + split) * (map.head_dim + 2);
  }
};

/// One thread per element of the new keys and values. Positions outside the cache are not written.
template <class T>
__global__ void __launch_bounds__(256) append_kernel(const CacheCall<T> c) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x, d = c.map.head_dim,
                     width = c.map.kv_heads * d;
  if (i >= c.map.batch * c.map.tokens * width) return;
  const std::int64_t row = i / width, kv_head = i % width / d, column = i % d, b = row / c.map.tokens,
                     t = row % c.map.tokens;
  const std::int64_t position = c.position(row);
  if (position < 0 || (position >= c.capacity && !c.rings)) return;
  const std::int64_t to = c.cached(b, kv_head) + position % c.capacity * d + column;
  c.keys[to] = c.k.row(b, kv_head, t)[column];
  c.values[to] = c.v.row(b, kv_head, t)[column];
}

/// How a warp reads rows of up to Width elements: `lanes` lanes share a key, each with `vectors` vectors of `length`
/// elements; vector v of lane l begins at element (v·lanes + l)·length.
template <class T, int Width>
struct RowSplit {
  static constexpr int length = 16 / sizeof(T), lanes = Width / length < 32 ? Width / length : 32,
                       vectors = Width / (length * lanes), elements = vectors * length;
  static constexpr int groups = split_threads / lanes;  // of lanes in a block: each has keys of its own
  static constexpr int tile = groups * split_keys;
  static_assert(tile == split_tile(Width, sizeof(T)));
};

/// Element i of 16 bytes as they lie in memory: so they take four registers.
template <class T>
__device__ __forceinline__ float element_of(const uint4& raw, int i) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  if constexpr (sizeof(T) == 4) return bits_as<float>(words[i]);
  else return to_float(bits_as<T>(static_cast<std::uint16_t>(words[i / 2] >> 16 * (i % 2))));
}

/// A lane's part of a row of d elements; zeros beyond d, or if not `exists`.
template <class R, class T>
__device__ __forceinline__ void read_row(const T* row, int lane, std::int64_t d, bool aligned, bool exists,
                                         uint4 (&part)[R::vectors]) {
#pragma unroll
  for (int v = 0; v < R::vectors; ++v) {
    const int first = (v * R::lanes + lane) * R::length;
    part[v] = uint4{0, 0, 0, 0};
    if (aligned) {
      if (exists && first < d) part[v] = *reinterpret_cast<const uint4*>(row + first);
    } else {
      T one[R::length];
#pragma unroll
      for (int i = 0; i < R::length; ++i) one[i] = exists && first + i < d ? row[first + i] : rounded<T>(0.0F);
      memcpy(&part[v], one, 16);
    }
  }
}

/// The state of online softmax for Heads queries: maximum, sum, and a lane's part of the unnormalized output.
template <int Heads, int Elements>
struct OnlineSoftmax {
  float max[Heads], sum[Heads], out[Heads][Elements];
};

/// Adds split_keys keys: the first `seen` of them or, with rules, those in its bits. All heads' scores come before the
/// values are read, so that the registers hold keys or values as fp32, not both.
template <class T, class R, int Heads, bool Ruled>
__device__ __forceinline__ void add_keys(OnlineSoftmax<Heads, R::elements>& s, const float (&q)[Heads][R::elements],
                                         const uint4 (&keys)[split_keys][R::vectors],
                                         const uint4 (&values)[split_keys][R::vectors], int seen,
                                         const CacheCall<T>& c) {
  float weights[Heads][split_keys];
#pragma unroll
  for (int j = 0; j < split_keys; ++j)
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
      float dot = 0;
#pragma unroll
      for (int i = 0; i < R::elements; ++i)
        dot = fmaf(q[h][i], element_of<T>(keys[j][i / R::length], i % R::length), dot);
#pragma unroll
      for (int width = R::lanes / 2; width > 0; width /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, width);
      if constexpr (Ruled) dot = c.soft_cap.cap > 0 ? c.soft_cap.score(dot) : dot * c.scale;
      else dot *= c.scale;
      weights[h][j] = (Ruled ? (seen >> j & 1) != 0 : j < seen) ? dot : -INFINITY;
    }
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    float now = s.max[h];
#pragma unroll
    for (int j = 0; j < split_keys; ++j) now = fmaxf(now, weights[h][j]);
    const float base = now == -INFINITY ? 0.0F : now, rescale = expf(s.max[h] - base);
    s.max[h] = now;
    s.sum[h] *= rescale;
#pragma unroll
    for (int i = 0; i < R::elements; ++i) s.out[h][i] *= rescale;
#pragma unroll
    for (int j = 0; j < split_keys; ++j) {
      weights[h][j] = expf(weights[h][j] - base);
      s.sum[h] += weights[h][j];
    }
  }
#pragma unroll
  for (int j = 0; j < split_keys; ++j)
#pragma unroll
    for (int i = 0; i < R::elements; ++i) {
      const float value = element_of<T>(values[j][i / R::length], i % R::length);
#pragma unroll
      for (int h = 0; h < Heads; ++h) s.out[h][i] = fmaf(weights[h][j], value, s.out[h][i]);
    }
}

/// The weight of a partial softmax with maximum `max` beside others with the common maximum `largest`.
TESSERA_HD float weight_of(float max, float largest) { return max == -INFINITY ? 0.0F : expf(max - largest); }

/// Writes an element of a softmax with maximum `largest`, sum `sum` and output `out`, which a sink joins as a key whose
/// value is zero.
template <class T>
__device__ __forceinline__ void write_element(const CacheCall<T>& c, std::int64_t row, std::int64_t head,
                                              std::int64_t column, float largest, float sum, float out) {
  const std::int64_t b = row / c.map.tokens, t = row % c.map.tokens;
  if (c.sinks != nullptr) {
    const float sink = to_float(c.sinks[head]), most = fmaxf(largest, sink), own = expf(largest - most);
    sum = fmaf(sum, own, expf(sink - most));
    out *= own;
    largest = most;
  }
  c.out[c.map.out(b, head, t) + column] = rounded<T>(out * div(1.0F, sum));
  if (c.lse != nullptr && column == 0) c.lse[c.map.lse(b, head, t)] = largest + logf(sum);
}

/// Block ((row · kv heads + kv head) · parts of its group + part) · splits + split: up to Heads queries, and tiles
/// split, split + splits, … of their keys. Within a block the groups of lanes are merged in their order.
/// Ruled: with a window or a soft cap.
template <class T, int Width, int Heads, bool Ruled>
__global__ void __launch_bounds__(split_threads, 2) cached_kernel(const CacheCall<T> c) {
  using R = RowSplit<T, Width>;
  await_kernel_before();
  __shared__ float outs[R::groups][Heads][Width];
  __shared__ float maxima[R::groups][Heads];
  __shared__ float sums[R::groups][Heads];
  const std::int64_t d = c.map.head_dim, group_heads = c.map.group(), parts = (group_heads + Heads - 1) / Heads;
  const std::int64_t split = blockIdx.x % c.splits, task = blockIdx.x / c.splits, part = task % parts,
                     kv_head = task / parts % c.map.kv_heads, row = task / parts / c.map.kv_heads,
                     b = row / c.map.tokens, t = row % c.map.tokens, first_head = kv_head * group_heads + part * Heads;
  const int heads = static_cast<int>(group_heads - part * Heads < Heads ? group_heads - part * Heads : Heads);
  const int thread = static_cast<int>(threadIdx.x), group = thread / R::lanes, lane = thread % R::lanes;
  const std::int64_t cached = c.cached(b, kv_head);
  const int begin = Ruled ? static_cast<int>(c.begin(row)) : 0, end = static_cast<int>(c.end(row)),
            fresh = c.appends ? static_cast<int>(c.position(row)) : -1;
  const int capacity = static_cast<int>(c.capacity), base = Ruled ? begin / capacity * capacity : 0;
  const auto entry_of = [=](int key) {  // keys that are seen are within a window, and a ring has one
    const int entry = key - base;
    return Ruled && entry >= capacity ? entry - capacity : entry;
  };

  float q[Heads][R::elements];
  OnlineSoftmax<Heads, R::elements> s;
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    uint4 raw[R::vectors];
    read_row<R>(c.q.row(b, first_head + (h < heads ? h : 0), t), lane, d, c.vectors, h < heads, raw);
    s.max[h] = -INFINITY;
    s.sum[h] = 0;
#pragma unroll
    for (int i = 0; i < R::elements; ++i) q[h][i] = element_of<T>(raw[i / R::length], i % R::length), s.out[h][i] = 0;
  }
  const T *const keys_of_row = c.keys + cached, *const values_of_row = c.values + cached;
  const std::int64_t fresh_at = c.k.row(b, kv_head, t) - c.k.data;  // in v as in k
  int tile = static_cast<int>(split) * R::tile;
  if constexpr (Ruled)  // the last of its tiles that is not after `begin`
    if (begin > tile) tile += (begin - tile) / (c.splits * R::tile) * (c.splits * R::tile);
  for (; tile < end; tile += c.splits * R::tile) {
    const int first = tile + group;  // of this group's keys, R::groups apart
    uint4 keys[split_keys][R::vectors], values[split_keys][R::vectors];
    int seen = 0;
#pragma unroll
    for (int j = 0; j < split_keys; ++j) {
      const int key = first + j * R::groups;
      const bool exists = (!Ruled || key >= begin) && key < end;
      const std::int64_t at = exists ? entry_of(key) * d : 0;
      read_row<R>(key == fresh ? c.k.data + fresh_at : keys_of_row + at, lane, d, c.vectors, exists, keys[j]);
      read_row<R>(key == fresh ? c.v.data + fresh_at : values_of_row + at, lane, d, c.vectors, exists, values[j]);
      seen += exists ? (Ruled ? 1 << j : 1) : 0;
    }
    add_keys<T, R, Heads, Ruled>(s, q, keys, values, seen, c);
  }

  // Nobody reads the entry in this launch.
  if (part == 0 && fresh >= 0 && fresh < end && fresh / R::tile % c.splits == split)
    for (std::int64_t i = thread; i < d; i += split_threads) {
      c.keys[cached + entry_of(fresh) * d + i] = c.k.data[fresh_at + i];
      c.values[cached + entry_of(fresh) * d + i] = c.v.data[fresh_at + i];
    }

#pragma unroll
  for (int h = 0; h < Heads; ++h) {
#pragma unroll
    for (int i = 0; i < R::elements; ++i)
      outs[group][h][(i / R::length * R::lanes + lane) * R::length + i % R::length] = s.out[h][i];
    if (lane == 0) maxima[group][h] = s.max[h], sums[group][h] = s.sum[h];
  }
  __syncthreads();
  for (std::int64_t i = thread; i < heads * d; i += split_threads) {
    const std::int64_t h = i / d, column = i % d, head = first_head + h;
    float largest = -INFINITY, sum = 0, out = 0;
#pragma unroll
    for (int g = 0; g < R::groups; ++g) largest = fmaxf(largest, maxima[g][h]);
#pragma unroll
    for (int g = 0; g < R::groups; ++g) {
      const float weight = weight_of(maxima[g][h], largest);
      sum = fmaf(weight, sums[g][h], sum);
      out = fmaf(weight, outs[g][h][column], out);
    }
    if (c.splits == 1) {
      write_element(c, row, head, column, largest, sum, out);
    } else {
      float* const to = c.partial_of(row, head, split);
      to[column] = out;
      if (column == 0) to[d] = largest, to[d + 1] = sum;
    }
  }
}

/// A block per head of a row, a thread per column: the splits in their order. Those without keys have maximum
/// -infinity.
template <class T>
__global__ void __launch_bounds__(max_device_head_dim) merge_kernel(const CacheCall<T> c, std::int64_t tile) {
  await_kernel_before();
  const std::int64_t head = blockIdx.x % c.map.heads, row = blockIdx.x / c.map.heads, d = c.map.head_dim,
                     column = threadIdx.x;
  if (column >= d) return;
  const std::int64_t tiles = (c.end(row) + tile - 1) / tile;
  const int used = static_cast<int>(tiles < c.splits ? tiles : c.splits);
  const float* const partial = c.partial_of(row, head, 0);
  float largest = -INFINITY, sum = 0, out = 0;
#pragma unroll 8
  for (int i = 0; i < used; ++i) largest = fmaxf(largest, partial[i * (d + 2) + d]);
#pragma unroll 8
  for (int i = 0; i < used; ++i) {
    const float* const from = partial + i * (d + 2);
    const float weight = weight_of(from[d], largest);
    sum = fmaf(weight, from[d + 1], sum);
    out = fmaf(weight, from[column], out);
  }
  write_element(c, row, head, column, largest, sum, out);
}

template <class T>
HeadRowsOf<const T> rows_of(const HeadRows& heads, const AttentionShape& s) {
  return {data_of<T>(heads.data), heads.pitch, s.tokens, s.head_dim};
}

template <class T>
CacheCall<T> call_of(const CacheAppendArgs& args) {
  const AttentionShape& s = args.shape;
  TESSERA_ASSERT(s.head_dim <= max_device_head_dim, "heads of %ld", s.head_dim);
  return {.map = {s.batch, s.tokens, s.heads, s.kv_heads, s.head_dim, args.cache.capacity(), 0, s.window},
          .capacity = args.cache.capacity(),
          .positions = args.positions ? data_of<std::int32_t>(args.positions) : nullptr,
          .first = args.first,
          .rings = s.window > 0 && args.cache.capacity() >= std::max(s.window, s.tokens),
          .q = {},
          .k = rows_of<T>(args.k, s),
          .v = rows_of<T>(args.v, s),
          .keys = data_of<T>(args.cache.keys),
          .values = data_of<T>(args.cache.values)};
}

template <int Width, int Heads, bool Ruled, class T>
void launch(const CacheCall<T>& call, StreamView stream) {
  const HeadMap& map = call.map;
  const std::int64_t parts = (map.group() + Heads - 1) / Heads;
  const unsigned blocks = blocks_for(map.batch * map.tokens * map.kv_heads * parts * call.splits, 1);
  launch_dependent(cached_kernel<T, Width, Heads, Ruled>,
                   {blocks, split_threads, stream_of(stream), "cached_attention"}, call);
}

/// Queries of a block: those that share a head of keys, up to eight; with rules, four. fp32, in which generation is
/// checked and not fast, has one kernel for all: each takes nvcc seconds.
template <int Width, class T>
void launch_heads(const CacheCall<T>& call, StreamView stream) {
  const std::int64_t group = call.map.group();
  const bool ruled = call.soft_cap.cap > 0 || call.map.window > 0;
  if constexpr (sizeof(T) == 4) return launch<Width, 4, true>(call, stream);
  else if (ruled) return group == 1 ? launch<Width, 1, true>(call, stream) : launch<Width, 4, true>(call, stream);
  else if (group == 1) return launch<Width, 1, false>(call, stream);
  else if (group > 4) return launch<Width, 8, false>(call, stream);
  else return launch<Width, 4, false>(call, stream);
}

}  // namespace

void cache_append(const CacheAppendArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  dispatch_dtype(args.k.data.dtype, [&]<class T>(T) {
    append_kernel<T><<<blocks_for(s.batch * s.tokens * s.kv_heads * s.head_dim, 256), 256, 0, stream_of(stream)>>>(
        call_of<T>(args));
    check_launch("cache_append");
  });
}

void cached_attention(const CachedAttentionArgs& args, StreamView stream) {
  const AttentionArgs& of = args.of;
  const AttentionShape& s = of.shape;
  const bool appends_itself = args.appends && s.tokens == 1 && of.qkv.k.pitch == of.qkv.v.pitch;
  const CacheAppendArgs append{
      .shape = s, .k = of.qkv.k, .v = of.qkv.v, .positions = of.positions, .cache = args.cache};
  if (args.appends && !appends_itself) cuda::cache_append(append, stream);
  const AttentionSplits splits = splits_of(s, args.cache.capacity(), size_of(of.qkv.q.data.dtype));
  const std::size_t needed = splits.count > 1 ? splits.workspace(s) : 0;
  TESSERA_ASSERT(needed == 0 || (args.workspace && args.workspace.nbytes() >= needed && aligned16(args.workspace.data)),
                 "workspace of %zu bytes, %zu needed", args.workspace.nbytes(), needed);
  dispatch_dtype(of.qkv.q.data.dtype, [&]<class T>(T) {
    CacheCall<T> call = call_of<T>(append);
    call.q = rows_of<T>(of.qkv.q, s);
    call.rings = s.window > 0 && args.cache.capacity() >= s.window + s.tokens - 1;
    call.out = data_of<T>(args.out);
    call.lse = args.lse ? args.lse.as<float>() : nullptr;
    call.scale = static_cast<float>(of.scale);
    call.soft_cap = {s.soft_cap, of.scale};
    call.sinks = s.sinks ? data_of<T>(of.sinks) : nullptr;
    call.splits = splits.count;
    call.appends = appends_itself;
    call.partial = static_cast<float*>(args.workspace.data);
    constexpr auto chunk = 16 / static_cast<std::int64_t>(sizeof(T));
    const auto are_vectors = [](const HeadRowsOf<const T>& rows) {
      return aligned16(rows.data) && rows.pitch % chunk == 0;
    };
    call.vectors = s.head_dim % chunk == 0 && are_vectors(call.q) && aligned16(call.keys) && aligned16(call.values) &&
                   (!appends_itself || (are_vectors(call.k) && are_vectors(call.v)));
    if (s.head_dim <= 64) launch_heads<64>(call, stream);
    else if (s.head_dim <= 128) launch_heads<128>(call, stream);
    else launch_heads<256>(call, stream);
    if (splits.count == 1) return;
    const LaunchShape shape{blocks_for(s.batch * s.tokens * s.heads, 1), blocks_for(s.head_dim, 32) * 32,
                            stream_of(stream), "the merge of cached_attention"};
    launch_dependent(merge_kernel<T>, shape, call, splits.tile);
  });
}

std::size_t cached_attention_workspace(const AttentionShape& shape) { return most_split_workspace(shape); }

}  // namespace tessera::kernels::cuda
