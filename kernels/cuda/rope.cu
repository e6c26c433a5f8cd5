// SPDX-License-Identifier: Apache-2.0
// Rotary positions on a device: a thread rotates pairs (j, j + d/2) of one head of one row.
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/rope.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int max_frequencies = 256;  // for heads up to 512; passed as a kernel argument

struct Frequencies {
  double value[max_frequencies];
};

template <class T>
__global__ void __launch_bounds__(256)
    rope_table_kernel(const __grid_constant__ Frequencies inv_freq, std::int64_t half, double scale,
                      const std::int32_t* positions, std::int64_t table_rows, T* table) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= table_rows * half) return;
  const std::int64_t row = i / half, j = i % half;
  // The angle is rounded as on the host; 16-bit tables have fp32 angles.
  const float angle = mul(static_cast<float>(positions ? positions[row] : row), static_cast<float>(inv_freq.value[j]));
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  table[row * 2 * half + j] = rounded<T>(static_cast<float>(mul(cosine, scale)));
  table[row * 2 * half + half + j] = rounded<T>(static_cast<float>(mul(sine, scale)));
}

template <class T, class S>
struct Rope {
  T* x;
  const S* table;
  const std::int32_t* positions;
  std::int64_t rows, heads, half, stride, table_rows;
  float sign;
};

template <int N, class T, class S>
__global__ void __launch_bounds__(256) rope_kernel(const Rope<T, S> r) {
  const std::int64_t runs = r.half / N, i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= r.rows * r.heads * runs) return;
  const std::int64_t j = i % runs * N, head = i / runs % r.heads, row = i / runs / r.heads;
  const S* const turn = r.table + (r.positions ? r.positions[row] : row % r.table_rows) * 2 * r.half + j;
  T* const low = r.x + row * r.stride + head * 2 * r.half + j;
  float a[N], b[N], c[N], s[N];
  load<N>(low, a);
  load<N>(low + r.half, b);
  load<N>(turn, c);
  load<N>(turn + r.half, s);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float sine = r.sign * s[k], x = a[k], y = b[k];
    a[k] = fused(x, c[k], -mul(y, sine));
    b[k] = fused(y, c[k], mul(x, sine));
  }
  store<N>(low, a);
  store<N>(low + r.half, b);
}

}  // namespace

void rope_table(const RopeTableArgs& args, StreamView stream) {
  const auto half = static_cast<std::int64_t>(args.inv_freq.size()), table_rows = args.table.shape[0];
  TESSERA_ASSERT(half <= max_frequencies, "%ld frequencies", half);
  if (half * table_rows == 0) return;
  Frequencies inv_freq{};
  for (std::int64_t j = 0; j < half; ++j) inv_freq.value[j] = args.inv_freq[static_cast<std::size_t>(j)];
  dispatch_dtype(args.table.dtype, [&]<class T>(T) {
    rope_table_kernel<T><<<blocks_for(table_rows * half, 256), 256, 0, stream_of(stream)>>>(
        inv_freq, half, args.scale, args.positions ? data_of<std::int32_t>(args.positions) : nullptr, table_rows,
        data_of<T>(args.table));
    check_launch("rope_table");
  });
}

void rope(const RopeArgs& args, StreamView stream) {
  const std::int64_t half = args.head_dim / 2, rows = args.x.shape[0], heads = args.x.shape[1] / args.head_dim;
  if (rows * heads == 0) return;
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.table.dtype, [&](auto table) {  // the table is of x's type, or fp32
      using S = decltype(table);
      const Rope<T, S> r{data_of<T>(args.x),
                         data_of<S>(args.table),
                         args.positions ? data_of<std::int32_t>(args.positions) : nullptr,
                         rows,
                         heads,
                         half,
                         row_stride(args.x, args.stride),
                         args.table.shape[0],
                         args.rotation == Rotation::forward ? 1.0F : -1.0F};
      constexpr int n = vector_length<T, S>;
      const bool vectors = half % n == 0 && r.stride % n == 0 && aligned16(r.x) && aligned16(r.table);
      if (vectors) rope_kernel<n><<<blocks_for(rows * heads * (half / n), 256), 256, 0, stream_of(stream)>>>(r);
      else rope_kernel<1><<<blocks_for(rows * heads * half, 256), 256, 0, stream_of(stream)>>>(r);
      check_launch("rope");
    });
  });
}

}  // namespace tessera::kernels::cuda
