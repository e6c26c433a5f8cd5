// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensor-core instructions of sm_80 and newer that attention uses, one function each. Only for .cu files.

#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// c += a·b, 16×8, depth 16.
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats rounded to T in one register, the first in the lower bits.
template <class T>
__device__ __forceinline__ std::uint32_t packed(float low, float high) {
  std::uint32_t r;
  if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

/// Two adjacent accumulators as an operand A.
template <class T>
__device__ __forceinline__ void pack_operand_a(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = packed<T>(left[0], left[1]);
  a[1] = packed<T>(left[2], left[3]);
  a[2] = packed<T>(right[0], right[1]);
  a[3] = packed<T>(right[2], right[3]);
}

/// Copies 16 bytes from global to shared memory (cp.async); zeros if not `valid`.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `Groups` of this thread's groups of copies are pending.
template <int Groups>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
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
