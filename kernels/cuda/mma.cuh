// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of operands in shared memory, and products of tiles by tensor cores. Only for .cu files.

#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/instructions.cuh"

namespace tessera::kernels::cuda {

/// Two adjacent accumulators as an operand A.
template <class T>
__device__ __forceinline__ void pack_operand_a(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = packed<T>(left[0], left[1]);
  a[1] = packed<T>(left[2], left[3]);
  a[2] = packed<T>(right[0], right[1]);
  a[3] = packed<T>(right[2], right[3]);
}

/// Rows of one head in global memory.
template <class T>
struct RowsOf {
  const T* first;       // row 0
  std::int64_t stride;  // elements from row to row
  std::int64_t rows;    // within bounds; rows beyond are zero
  int head_dim;         // elements of a row; those beyond are zero
  bool vectors;         // rows are aligned to 16 bytes and whole chunks
};

/// Loads rows [row, row + Rows) into a tile with rows of D elements, by all threads of the block; the caller commits
/// and waits.
template <int D, int Rows = block_m, class T>
__device__ __forceinline__ void load_tile(T* tile, const RowsOf<T>& from, std::int64_t row) {
  constexpr int chunks = D / chunk_elements;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < Rows * chunks; i += tile_threads) {
    const int r = i / chunks, chunk = i % chunks;
    T* const to = tile + swizzled_offset(r, chunk, D);
    const bool row_exists = row + r < from.rows;
    const T* const source = from.first + (row_exists ? row + r : 0) * from.stride + chunk * chunk_elements;
    if (from.vectors) {
      const bool exists = row_exists && (chunk + 1) * chunk_elements <= from.head_dim;
      copy_async(to, exists ? source : from.first, exists);
    } else {
      for (int e = 0; e < chunk_elements; ++e)
        to[e] = row_exists && chunk * chunk_elements + e < from.head_dim ? source[e] : rounded<T>(0.0F);
    }
  }
}

/// QKᵀ: scores[j] += rows [a_first, +16) of A's tile times columns 8·j … of B, whose tile has a row per column: 16 rows
/// × (8·Tiles) columns, depth D.
template <int D, int Tiles, class T>
__device__ __forceinline__ void mma_qkt(float (&scores)[Tiles][4], const T* a_tile, int a_first, const T* b_tile,
                                        int b_first, int lane) {
  static_assert(Tiles % 2 == 0);
#pragma unroll
  for (int k = 0; k < D / chunk_elements; k += 2) {
    std::uint32_t a[4];
    load_matrices(a, a_tile + swizzled_offset(a_first + a_row(lane), k + a_chunk(lane), D));
#pragma unroll
    for (int j = 0; j < Tiles; j += 2) {
      std::uint32_t b[4];
      load_matrices(b, b_tile + swizzled_offset(b_first + 8 * j + b_row(lane), k + b_chunk(lane), D));
      multiply_add<T>(scores[j], a, b[0], b[1]);
      multiply_add<T>(scores[j + 1], a, b[2], b[3]);
    }
  }
}

/// PV: out[n] += P (16 rows, depth 8·Tiles, from accumulators) times columns [8·first_column + 8·n, …) of B, whose tile
/// has a row per depth.
template <int D, int Columns, int Tiles, class T>
__device__ __forceinline__ void mma_pv(float (&out)[Columns][4], const float (&p)[Tiles][4], const T* b_tile,
                                       int b_first, int first_column, int lane) {
  static_assert(Columns % 2 == 0 && Tiles % 2 == 0);
#pragma unroll
  for (int k = 0; k < Tiles; k += 2) {
    std::uint32_t a[4];
    pack_operand_a<T>(a, p[k], p[k + 1]);
#pragma unroll
    for (int n = 0; n < Columns; n += 2) {
      std::uint32_t b[4];
      load_matrices_transposed(
          b, b_tile + swizzled_offset(b_first + 8 * k + bt_row(lane), first_column + n + bt_chunk(lane), D));
      multiply_add<T>(out[n], a, b[0], b[1]);
      multiply_add<T>(out[n + 1], a, b[2], b[3]);
    }
  }
}

}  // namespace tessera::kernels::cuda
