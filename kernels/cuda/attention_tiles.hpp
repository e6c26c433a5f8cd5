#pragma once
// Where the numbers of attention's tiles lie: heads in memory, rows in shared memory, elements in the registers of a
// warp. Host and device, so that the maps are tested without a device. Tiles are 64 rows of D numbers of two bytes; the
// product is mma.m16n8k16 (PTX ISA, "Matrix Fragments").

#include "kernels/cuda/element.hpp"

namespace tessera::kernels::cuda {

inline constexpr int block_m = 64;  // queries or keys of a tile
inline constexpr int warp_m = 16;   // of them, one warp's
inline constexpr int tile_warps = 4;
inline constexpr int tile_threads = 32 * tile_warps;
inline constexpr int chunk_elements = 8;  // 16 bytes: what one lane hands to ldmatrix

/// Elements from the start of a tile to chunk `chunk` of row `row`, rows of `width` numbers (a multiple of 64). Chunks
/// are exchanged within groups of eight by the row's low bits, so that eight rows of one column of chunks lie in
/// different banks.
TESSERA_HD int swizzled_offset(int row, int chunk, int width) {
  return row * width + ((chunk ^ (row & 7)) * chunk_elements);
}

// ldmatrix.x4 reads four 8×8 matrices; lane l names row l%8 of matrix l/8. As A (16 rows, 16 deep) they are: rows 0-7,
// rows 8-15, then both again 8 deeper.
TESSERA_HD int a_row(int lane) { return lane % 8 + (lane / 8 % 2) * 8; }
TESSERA_HD int a_chunk(int lane) { return lane / 16; }
// As B of two products side by side, from rows that are columns of B (K for scores): columns 0-7 at
// depth 0 and 8, then columns 8-15.
TESSERA_HD int b_row(int lane) { return lane % 8 + lane / 16 * 8; }
TESSERA_HD int b_chunk(int lane) { return lane / 8 % 2; }
// As B of two products side by side, from rows that are the depth (V for outputs; ldmatrix.trans): depth 0-7
// and 8-15, then the next 8 columns.
TESSERA_HD int bt_row(int lane) { return lane % 8 + (lane / 8 % 2) * 8; }
TESSERA_HD int bt_chunk(int lane) { return lane / 16; }

// Element i of 4 of an accumulator (16 rows, 8 columns) in lane l. Two accumulators side by side, rounded and
// packed in pairs, are an A of 16×16.
TESSERA_HD int c_row(int lane, int i) { return lane / 4 + (i / 2) * 8; }
TESSERA_HD int c_column(int lane, int i) { return lane % 4 * 2 + i % 2; }

/// The heads of a call: where query, key, value and output rows lie.
struct HeadMap {
  std::int64_t batch, tokens, heads, kv_heads, head_dim;

  TESSERA_HD std::int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }  // from token to token of qkv
  TESSERA_HD std::int64_t out_stride() const { return heads * head_dim; }
  TESSERA_HD std::int64_t group() const { return heads / kv_heads; }
  TESSERA_HD std::int64_t q(std::int64_t b, std::int64_t head, std::int64_t t) const {
    return (b * tokens + t) * stride() + head * head_dim;
  }
  TESSERA_HD std::int64_t k(std::int64_t b, std::int64_t kv_head, std::int64_t t) const {
    return (b * tokens + t) * stride() + (heads + kv_head) * head_dim;
  }
  TESSERA_HD std::int64_t v(std::int64_t b, std::int64_t kv_head, std::int64_t t) const {
    return k(b, kv_head, t) + kv_heads * head_dim;
  }
  TESSERA_HD std::int64_t out(std::int64_t b, std::int64_t head, std::int64_t t) const {
    return (b * tokens + t) * out_stride() + head * head_dim;
  }
  TESSERA_HD std::int64_t lse(std::int64_t b, std::int64_t head, std::int64_t t) const {
    return (b * heads + head) * tokens + t;
  }
};

/// The first token a query may see: its document's first. positions: (B, T), or null where a sequence is one document;
/// they count up within a document.
TESSERA_HD std::int64_t first_seen(const std::int32_t* positions, const HeadMap& map, std::int64_t b, std::int64_t t) {
  const std::int64_t back = positions ? t - positions[b * map.tokens + t] : 0;
  return back > 0 ? back : 0;  // a sequence may begin inside a document
}

}  // namespace tessera::kernels::cuda
