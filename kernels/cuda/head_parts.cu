// SPDX-License-Identifier: Apache-2.0
// Heads in parts on a device: a thread copies or adds up to 16 bytes of a head.
#include "kernels/cuda/head_parts.hpp"

#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct PartsOfHeads {
  T* rows;
  T* parts;
  std::int64_t num_rows, num_parts, heads, kv_heads, d, q, kv;  // q, kv: columns of a part's q and k heads
  std::int64_t width, part_width, copies;
};

/// A thread for N columns of a row of a part.
template <int N, class T>
__global__ void __launch_bounds__(256) split_heads_kernel(const PartsOfHeads<T> h) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) * N;
  if (i >= h.num_parts * h.num_rows * h.part_width) return;
  const std::int64_t row = i / h.part_width % h.num_rows, part = i / h.part_width / h.num_rows;
  std::int64_t column = i % h.part_width;
  if (column < h.q) {
    column += part * h.q;
  } else {
    const bool values = column >= h.q + h.kv;
    column += h.heads * h.d - h.q + part * h.kv_heads / h.num_parts * h.d + (values ? h.kv_heads * h.d - h.kv : 0);
  }
  float v[N];
  load<N>(h.rows + row * h.width + column, v);
  store<N>(h.parts + i, v);
}

/// A thread for N columns of a row.
template <int N, class T>
__global__ void __launch_bounds__(256) merge_heads_kernel(const PartsOfHeads<T> h) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) * N;
  if (i >= h.num_rows * h.width) return;
  const std::int64_t row = i / h.width, queries = h.heads * h.d;
  std::int64_t column = i % h.width, part, copies = 1;
  if (column < queries) {
    part = column / h.q;
    column %= h.q;
  } else {
    column -= queries;
    const bool values = column >= h.kv_heads * h.d;
    if (values) column -= h.kv_heads * h.d;
    part = column / h.kv * h.copies;
    column = h.q + (values ? h.kv : 0) + column % h.kv;
    copies = h.copies;
  }
  const T* x = h.parts + (part * h.num_rows + row) * h.part_width + column;
  float sum[N];
  load<N>(x, sum);
  for (std::int64_t k = 1; k < copies; ++k) {
    float v[N];
    x += h.num_rows * h.part_width;
    load<N>(x, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += v[j];
  }
  store<N>(h.rows + i, sum);
}

template <class T>
PartsOfHeads<T> parts_of_heads(const HeadPartsArgs& args) {
  const HeadParts& of = args.of;
  return {data_of<T>(args.rows),
          data_of<T>(args.parts),
          args.rows.shape[0],
          of.parts,
          of.heads,
          of.kv_heads,
          of.head_dim,
          of.part_heads() * of.head_dim,
          of.part_kv_heads() * of.head_dim,
          of.width(),
          of.part_width(),
          of.copies()};
}

/// Whether heads and both matrices begin at multiples of 16 bytes.
template <class T>
bool heads_are_aligned(const HeadPartsArgs& args) {
  return args.of.head_dim % vector_length<T> == 0 && aligned16(args.rows.data) && aligned16(args.parts.data);
}

}  // namespace

void split_heads(const HeadPartsArgs& args, StreamView stream) {
  const std::int64_t n = args.of.parts * args.rows.shape[0] * args.of.part_width();
  if (n == 0) return;
  dispatch_dtype(args.rows.dtype, [&]<class T>(T) {
    constexpr int N = vector_length<T>;
    if (heads_are_aligned<T>(args))
      split_heads_kernel<N, T><<<blocks_for(n, 256 * N), 256, 0, stream_of(stream)>>>(parts_of_heads<T>(args));
    else split_heads_kernel<1, T><<<blocks_for(n, 256), 256, 0, stream_of(stream)>>>(parts_of_heads<T>(args));
    check_launch("split_heads");
  });
}

void merge_heads(const HeadPartsArgs& args, StreamView stream) {
  const std::int64_t n = args.rows.numel();
  if (n == 0) return;
  dispatch_dtype(args.rows.dtype, [&]<class T>(T) {
    constexpr int N = vector_length<T>;
    if (heads_are_aligned<T>(args))
      merge_heads_kernel<N, T><<<blocks_for(n, 256 * N), 256, 0, stream_of(stream)>>>(parts_of_heads<T>(args));
    else merge_heads_kernel<1, T><<<blocks_for(n, 256), 256, 0, stream_of(stream)>>>(parts_of_heads<T>(args));
    check_launch("merge_heads");
  });
}

}  // namespace tessera::kernels::cuda
