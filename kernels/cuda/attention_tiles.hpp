// SPDX-License-Identifier: Apache-2.0
#pragma once
// Index maps of attention's tiles, for host and device (tested without a device): heads in memory, rows in shared
// memory, elements in the registers of a warp. Tiles are block_m rows of D elements of two bytes; the GEMM is
// mma.m16n8k16 (PTX ISA, "Matrix Fragments").

#include "kernels/cuda/element.hpp"

namespace tessera::kernels::cuda {

inline constexpr int block_m = 64;  // queries or keys of a tile (BLOCK_M)
inline constexpr int warp_m = 16;   // of them per warp
inline constexpr int tile_warps = 4;
inline constexpr int tile_threads = 32 * tile_warps;
/// Rows of the tiles that a loop streams through: 32 where 64 would take too many registers for the scores, and more
/// shared memory than every GPU has.
template <int D>
inline constexpr int streamed_rows = D > 128 ? 32 : 64;
inline constexpr int chunk_elements = 8;  // 16 bytes: what one lane passes to ldmatrix

/// Offset in a tile of chunk `chunk` of row `row`, rows of `width` elements (a multiple of 64). XOR swizzle: chunks are
/// permuted within groups of eight by the row's low bits, so that the same chunk of eight rows lies in different banks.
TESSERA_HD int swizzled_offset(int row, int chunk, int width) {
  return row * width + ((chunk ^ (row & 7)) * chunk_elements);
}

// ldmatrix.x4 reads four 8×8 matrices; lane l gives the address of row l%8 of matrix l/8. As operand A (16 rows, depth
// 16): rows 0-7, rows 8-15, then both again 8 deeper.
TESSERA_HD int a_row(int lane) { return lane % 8 + (lane / 8 % 2) * 8; }
TESSERA_HD int a_chunk(int lane) { return lane / 16; }
// As operand B of two adjacent tiles, from rows that are columns of B (K in QKᵀ): columns 0-7 at depth 0 and 8, then
// columns 8-15.
TESSERA_HD int b_row(int lane) { return lane % 8 + lane / 16 * 8; }
TESSERA_HD int b_chunk(int lane) { return lane / 8 % 2; }
// As operand B of two adjacent tiles, from rows that are the depth (V in PV; ldmatrix.trans): depth 0-7 and 8-15, then
// the next 8 columns.
TESSERA_HD int bt_row(int lane) { return lane % 8 + (lane / 8 % 2) * 8; }
TESSERA_HD int bt_chunk(int lane) { return lane / 16; }

// Element i of 4 of an accumulator (16 rows, 8 columns) in lane l. Two adjacent accumulators, rounded and packed in
// pairs, are an operand A of 16×16.
TESSERA_HD int c_row(int lane, int i) { return lane / 4 + (i / 2) * 8; }
TESSERA_HD int c_column(int lane, int i) { return lane % 4 * 2 + i % 2; }

/// Rows of the heads of q, k or v: of `tokens` tokens a sequence, `pitch` elements from one to the next.
template <class T>
struct HeadRowsOf {
  T* data;
  std::int64_t pitch, tokens, head_dim;
  TESSERA_HD T* row(std::int64_t b, std::int64_t head, std::int64_t t) const {
    return data + (b * tokens + t) * pitch + head * head_dim;
  }
};

/// Sizes of a call, and offsets of its output rows.
struct HeadMap {
  std::int64_t batch, tokens, heads, kv_heads, head_dim;
  std::int64_t keys, offset, window;  // of a sequence; of its first query among them; 0: all

  TESSERA_HD std::int64_t out_stride() const { return heads * head_dim; }
  TESSERA_HD std::int64_t group() const { return heads / kv_heads; }
  TESSERA_HD std::int64_t out(std::int64_t b, std::int64_t head, std::int64_t t) const {
    return (b * tokens + t) * out_stride() + head * head_dim;
  }
  TESSERA_HD std::int64_t lse(std::int64_t b, std::int64_t head, std::int64_t t) const {
    return (b * heads + head) * tokens + t;
  }
};

/// The first key that query t sees: the first of its document, and within its window. It never falls as t grows.
/// positions: (B, keys), counting up within a document, or null if a sequence is one document.
TESSERA_HD std::int64_t first_seen(const std::int32_t* positions, const HeadMap& map, std::int64_t b, std::int64_t t) {
  const std::int64_t place = map.offset + t, back = positions ? place - positions[b * map.keys + place] : 0;
  const std::int64_t first = back > 0 ? back : 0;  // a sequence may begin inside a document
  const std::int64_t window = map.window > 0 ? place + 1 - map.window : 0;
  return window > first ? window : first;
}

}  // namespace tessera::kernels::cuda
