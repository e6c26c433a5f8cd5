// SPDX-License-Identifier: Apache-2.0
// Rotary positions on a device: a thread rotates pairs of one head of one row, (j, j + half) or (2j, 2j + 1).
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/rope_at_positions.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/rope.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int max_frequencies = 256;  // for heads up to 512; passed as a kernel argument

struct Frequencies {
  double value[max_frequencies];
};

/// Cosine and sine of a position's angle, as the table of S has them. The angle is rounded as on the host; 16-bit
/// tables have fp32 angles.
template <class S>
__device__ __forceinline__ void turn_of(std::int64_t position, double inv_freq, double scale, S& c, S& s) {
  const float angle = mul(static_cast<float>(position), static_cast<float>(inv_freq));
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  c = rounded<S>(static_cast<float>(mul(cosine, scale)));
  s = rounded<S>(static_cast<float>(mul(sine, scale)));
}

template <class T>
__global__ void __launch_bounds__(256)
    rope_table_kernel(const __grid_constant__ Frequencies inv_freq, std::int64_t half, double scale,
                      const std::int32_t* positions, std::int64_t table_rows, T* table) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= table_rows * half) return;
  const std::int64_t row = i / half, j = i % half;
  turn_of(positions ? positions[row] : row, inv_freq.value[j], scale, table[row * 2 * half + j],
          table[row * 2 * half + half + j]);
}

template <class T, class S>
struct Rope {
  T* x;
  const S* table;
  const std::int32_t* positions;
  std::int64_t rows, heads, dim, half, stride, table_rows;
  std::int64_t step, apart;  // pair j is (j·step, j·step + apart)
  float sign;
};

/// Rotates a pair by an angle's cosine and sine.
__device__ __forceinline__ void rotate_pair(float& a, float& b, float cosine, float sine) {
  const float x = a, y = b;
  a = fused(x, cosine, -mul(y, sine));
  b = fused(y, cosine, mul(x, sine));
}

template <int N, class T, class S>
__global__ void __launch_bounds__(256) rope_kernel(const Rope<T, S> r) {
  const std::int64_t runs = r.half / N, i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= r.rows * r.heads * runs) return;
  const std::int64_t j = i % runs * N, head = i / runs % r.heads, row = i / runs / r.heads;
  const S* const turn = r.table + (r.positions ? r.positions[row] : row % r.table_rows) * 2 * r.half + j;
  T* const low = r.x + row * r.stride + head * r.dim + j * r.step;  // N > 1: steps of 1
  float a[N], b[N], c[N], s[N];
  load<N>(low, a);
  load<N>(low + r.apart, b);
  load<N>(turn, c);
  load<N>(turn + r.half, s);
#pragma unroll
  for (int k = 0; k < N; ++k) rotate_pair(a[k], b[k], c[k], r.sign * s[k]);
  store<N>(low, a);
  store<N>(low + r.apart, b);
}

/// A thread per pair, as rope_kernel<1>, by the position of its row: for few rows, where a launch costs more.
template <class T, class S>
__global__ void __launch_bounds__(256)
    rope_at_kernel(const __grid_constant__ Frequencies inv_freq, double scale, const Rope<T, S> r) {
  await_kernel_before();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= r.rows * r.heads * r.half) return;
  const std::int64_t j = i % r.half, head = i / r.half % r.heads, row = i / r.half / r.heads;
  S cosine, sine;
  turn_of(r.positions[row], inv_freq.value[j], scale, cosine, sine);
  T* const low = r.x + row * r.stride + head * r.dim + j * r.step;
  float a = to_float(low[0]), b = to_float(low[r.apart]);
  rotate_pair(a, b, to_float(cosine), r.sign * to_float(sine));
  low[0] = rounded<T>(a);
  low[r.apart] = rounded<T>(b);
}

Frequencies frequencies_of(std::span<const double> inv_freq) {
  TESSERA_ASSERT(inv_freq.size() <= max_frequencies, "%zu frequencies", inv_freq.size());
  Frequencies all{};
  for (std::size_t j = 0; j < inv_freq.size(); ++j) all.value[j] = inv_freq[j];
  return all;
}

template <class T, class S>
Rope<T, S> rope_of(const RopeArgs& args, const TensorView& positions) {
  const bool interleaved = args.pairs == RotaryPairs::interleaved;
  return {data_of<T>(args.x),
          data_of<S>(args.table),
          positions ? data_of<std::int32_t>(positions) : nullptr,
          args.x.shape[0],
          args.x.shape[1] / args.head_dim,
          args.head_dim,
          args.table.shape[1] / 2,
          row_stride(args.x, args.stride),
          args.table.shape[0],
          interleaved ? 2 : 1,
          interleaved ? 1 : args.table.shape[1] / 2,
          args.rotation == Rotation::forward ? 1.0F : -1.0F};
}

}  // namespace

void rope_table(const RopeTableArgs& args, StreamView stream) {
  const auto half = static_cast<std::int64_t>(args.inv_freq.size()), table_rows = args.table.shape[0];
  const Frequencies inv_freq = frequencies_of(args.inv_freq);
  if (half * table_rows == 0) return;
  dispatch_dtype(args.table.dtype, [&]<class T>(T) {
    rope_table_kernel<T><<<blocks_for(table_rows * half, 256), 256, 0, stream_of(stream)>>>(
        inv_freq, half, args.scale, args.positions ? data_of<std::int32_t>(args.positions) : nullptr, table_rows,
        data_of<T>(args.table));
    check_launch("rope_table");
  });
}

void rope(const RopeArgs& args, StreamView stream) {
  if (args.x.numel() == 0) return;
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.table.dtype, [&](auto table) {  // the table is of x's type, or fp32
      using S = decltype(table);
      const Rope<T, S> r = rope_of<T, S>(args, args.positions);
      constexpr int n = vector_length<T, S>;
      const std::int64_t pairs = r.rows * r.heads * r.half;
      const bool vectors =
          r.step == 1 && r.half % n == 0 && r.dim % n == 0 && r.stride % n == 0 && aligned16(r.x) && aligned16(r.table);
      if (vectors) rope_kernel<n><<<blocks_for(pairs / n, 256), 256, 0, stream_of(stream)>>>(r);
      else rope_kernel<1><<<blocks_for(pairs, 256), 256, 0, stream_of(stream)>>>(r);
      check_launch("rope");
    });
  });
}

void rope_at_positions(const RopeTableArgs& table, const RopeArgs& args, StreamView stream) {
  if (args.x.numel() == 0) return;
  const Frequencies inv_freq = frequencies_of(table.inv_freq);
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.table.dtype, [&](auto of_table) {
      using S = decltype(of_table);
      const Rope<T, S> r = rope_of<T, S>(args, table.positions);
      const LaunchShape shape{blocks_for(r.rows * r.heads * r.half, 256), 256, stream_of(stream), "rope_at_positions"};
      launch_dependent(rope_at_kernel<T, S>, shape, inv_freq, table.scale, r);
    });
  });
}

}  // namespace tessera::kernels::cuda
