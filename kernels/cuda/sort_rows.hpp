// SPDX-License-Identifier: Apache-2.0
#pragma once
// A stable radix sort of rows by a small integer key, lowest digit first, linear in the rows. Integers only, so equal
// calls give equal results. The plan is pure; sort_rows() is in sort_rows.cu.
//
// A pass counts the digits of each tile of rows (one per block), computes the prefix sums over digits and tiles, and
// moves each row to its position. Within a tile each warp takes consecutive rows in order.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/element.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels::cuda {

inline constexpr int sort_bits = 8, sort_digits = 1 << sort_bits;  // per pass
inline constexpr int sort_threads = 256, sort_rounds = 8;          // per block; rows per thread
inline constexpr std::int64_t sort_tile = sort_threads * sort_rounds;
static_assert(sort_threads == sort_digits, "one thread per digit");

TESSERA_HD int sort_digit(std::int32_t key, int pass) { return (key >> (pass * sort_bits)) & (sort_digits - 1); }
/// Passes for keys in [0, keys).
inline int sort_passes(std::int64_t keys) {
  int passes = 1;
  while (passes < 4 && ((keys - 1) >> (passes * sort_bits)) > 0) ++passes;
  return passes;
}
inline std::int64_t sort_tiles(std::int64_t rows) { return (rows + sort_tile - 1) / sort_tile; }
/// Row of a tile that lane `lane` of warp `warp` handles in round `round`.
TESSERA_HD std::int64_t sort_row(int warp, int round, int lane) { return (warp * sort_rounds + round) * 32 + lane; }

struct SortMemory {
  std::int32_t *keys[2], *rows[2];  // passes write to 0, 1, 0 …
  std::uint32_t* counts;            // (sort_digits, tiles)
};
/// Bytes of the workspace.
inline std::size_t sort_workspace(std::int64_t rows) {
  return static_cast<std::size_t>(4 * rows + sort_digits * sort_tiles(rows)) * sizeof(std::int32_t);
}
inline SortMemory sort_memory(void* workspace, std::int64_t rows) {
  auto* const base = static_cast<std::int32_t*>(workspace);
  return {{base, base + rows}, {base + 2 * rows, base + 3 * rows}, reinterpret_cast<std::uint32_t*>(base + 4 * rows)};
}

struct SortArgs {
  const std::int32_t* keys = nullptr;  // (rows), in [0, num_keys); device memory
  std::int64_t rows = 0, num_keys = 0;
  void* workspace = nullptr;  // sort_workspace(rows) bytes of device memory
};
/// In the workspace: the sorted keys, and the row that each came from.
struct SortedRows {
  const std::int32_t *keys = nullptr, *rows = nullptr;
};
SortedRows sort_rows(const SortArgs& args, StreamView stream);

/// One pass alone: `sorted` (rows) gets the rows in the order of keys below sort_digits. `counts` (sort_digits, tiles)
/// afterwards has where the rows of each digit and tile begin.
void sort_rows_once(const std::int32_t* keys, std::int64_t rows, std::uint32_t* counts, std::int32_t* sorted,
                    StreamView stream);

}  // namespace tessera::kernels::cuda
