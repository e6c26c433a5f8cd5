#pragma once
// The register tile of a bf16 product on packed pairs: what vdpbf16ps is wrapped in, and the same in plain C++.
//
// A panel of A holds pair_rows rows: word p·pair_rows + r is (a[r][2p], a[r][2p + 1]), the first in the low half. A panel of B holds
// pair_columns columns: word p·pair_columns + c is (b[2p][c], b[2p + 1][c]). What is missing at an edge, k odd included, is zero.

#include <cstdint>

namespace tessera::kernels::host {

inline constexpr std::int64_t pair_rows = 12, pair_columns = 32;

struct PairTile {
  std::int64_t pairs;
  const std::uint32_t *a, *b;  // one panel each
  float alpha;
  bool add;                    // c += alpha·a·b, or c = alpha·a·b
  float* c;                    // (pair_rows, pair_columns), rows ldc apart
  std::int64_t ldc;
};
using PairTileKernel = void (*)(const PairTile& tile);

namespace avx512_bf16 {
/// By vdpbf16ps; only where the CPU has AVX512-BF16.
void pair_tile(const PairTile& tile);
}  // namespace avx512_bf16

}  // namespace tessera::kernels::host
