// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arguments of the grouped GEMM kernels, and their launchers. Only for .cu files.

#include "kernels/cuda/grouped_gemm_tiles.hpp"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

/// A matrix in global memory, or the part of it that a block may read.
template <class T>
struct MatrixOf {
  const T* first;
  std::int64_t pitch;          // elements from row to row
  std::int64_t rows, columns;  // within bounds; elements beyond are zero
  bool vectors;                // rows are aligned to 16 bytes and whole chunks
};

/// Rows of groups times matrices: c (R, n) (+)= alpha · a (R, k) · b.
template <class T>
struct GroupedCall {
  const std::int32_t* offsets;
  std::int64_t groups;
  MatrixOf<T> a, b;       // all rows; the first group's matrix
  std::int64_t distance;  // from it to the next
  T* c;
  std::int64_t columns, pitch;  // n; elements from row to row of c
  float alpha;
  bool add, pairs;  // pairs: two columns of c may be stored by one instruction
};

/// Gradients of matrices: c (m, n) (+)= alpha · aᵀ · b over the rows of a group.
template <class T, class C>
struct GradientCall {
  const std::int32_t* offsets;
  std::int64_t groups;
  MatrixOf<T> a, b;       // (R, m), (R, n)
  C* c;                   // of the first group
  std::int64_t distance;  // to the next
  float alpha;
  bool add, pairs;
};

/// Operands of a block: op(a)·op(b) over `depth`.
template <class T>
struct Operands {
  MatrixOf<T> a, b;
  std::int64_t row, column, depth;  // where the block's tile of the result begins
};

/// The block's tile of the result: rows and columns within bounds.
template <class C>
struct ResultOf {
  C* first;
  std::int64_t pitch, rows, columns;
  float alpha;
  bool add, pairs;
};

/// The operands and the result of this block's tile; rows < 1: no work. Blocks run over columns first: neighbors share
/// rows of a.
template <class T>
__device__ __forceinline__ ResultOf<T> tile_of(const GroupedCall<T>& c, int height, int width, Operands<T>& x) {
  const std::int64_t wide = (c.columns + width - 1) / width, block = blockIdx.x;
  const RowTile tile = row_tile(c.offsets, c.groups, block / wide, height);
  x = {c.a, c.b, tile.first, block % wide * width, c.a.columns};
  x.a.rows = tile.last;
  x.b.first += tile.group * c.distance;
  return {c.c + tile.first * c.pitch + x.column,
          c.pitch,
          tile.last - tile.first,
          c.columns - x.column,
          c.alpha,
          c.add,
          c.pairs};
}
template <class T, class C>
__device__ __forceinline__ ResultOf<C> tile_of(const GradientCall<T, C>& c, int height, int width, Operands<T>& x) {
  const std::int64_t m = c.a.columns, n = c.b.columns, wide = (n + width - 1) / width, high = (m + height - 1) / height;
  const std::int64_t block = blockIdx.x, group = block / (wide * high), begin = c.offsets[group];
  x = {c.a, c.b, block / wide % high * height, block % wide * width, c.offsets[group + 1] - begin};
  x.a.first += begin * x.a.pitch;
  x.b.first += begin * x.b.pitch;
  x.a.rows = x.b.rows = x.depth;
  return {c.c + group * c.distance + x.row * n + x.column, n, m - x.row, n - x.column, c.alpha, c.add, c.pairs};
}

template <class T>
unsigned blocks_of(const GroupedCall<T>& c, std::int64_t height, std::int64_t width) {
  return blocks_for(max_row_tiles(c.a.rows, c.groups, height) * ((c.columns + width - 1) / width), 1);
}
template <class T, class C>
unsigned blocks_of(const GradientCall<T, C>& c, std::int64_t height, std::int64_t width) {
  return blocks_for(c.groups * ((c.a.columns + height - 1) / height) * ((c.b.columns + width - 1) / width), 1);
}

/// p[0, 2) (+)= alpha·x, alpha·y; y only if its column is within bounds.
template <class C>
__device__ __forceinline__ void put(const ResultOf<C>& to, std::int64_t row, std::int64_t column, float x, float y) {
  C* const p = to.first + row * to.pitch + column;
  const bool both = column + 1 < to.columns;
  x = mul(to.alpha, x), y = mul(to.alpha, y);
  if (to.add) {
    x = add(x, to_float(p[0]));
    if (both) y = add(y, to_float(p[1]));
  }
  const C pair[2] = {rounded<C>(x), rounded<C>(y)};
  if (both && to.pairs) {
    if constexpr (sizeof(C) == 2)
      *reinterpret_cast<std::uint32_t*>(p) = pair[0].bits | static_cast<std::uint32_t>(pair[1].bits) << 16;
    else *reinterpret_cast<float2*>(p) = make_float2(pair[0], pair[1]);
  } else {
    p[0] = pair[0];
    if (both) p[1] = pair[1];
  }
}

/// Tensor cores, bf16 and fp16.
template <class T>
void launch_grouped_tensor(const GroupedCall<T>& call, bool trans_b, cudaStream_t stream);
template <class T, class C>
void launch_gradient_tensor(const GradientCall<T, C>& call, cudaStream_t stream);
/// fp32 without tensor cores.
void launch_grouped_plain(const GroupedCall<float>& call, bool trans_b, cudaStream_t stream);
void launch_gradient_plain(const GradientCall<float, float>& call, cudaStream_t stream);

}  // namespace tessera::kernels::cuda
