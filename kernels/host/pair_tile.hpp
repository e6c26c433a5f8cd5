#pragma once
// The register tile of a bf16 product on packed pairs of k: what vdpbf16ps and tdpbf16ps are wrapped in, and plain C++
// besides.
//
// Word p·columns + c of a panel of B is (b[2p][c], b[2p + 1][c]), the first in the low half. A panel of A holds `group`
// pairs of a row beside each other: word ((p / group)·rows + r)·group + p % group is (a[r][2p], a[r][2p + 1]). What is
// missing at an edge, k odd included, is zero.

#include <cstdint>

namespace tessera::kernels::host {

/// What a tile multiplies at once.
struct PairShape {
  std::int64_t rows, columns;  // of C
  std::int64_t group;          // a panel's pairs are a multiple of it
};
inline constexpr PairShape vector_shape{12, 32, 1}, tile_shape{32, 32, 16};

struct PairTile {
  std::int64_t pairs;
  const std::uint32_t *a, *b;  // one panel each
  float alpha;
  bool add;  // c += alpha·a·b, or c = alpha·a·b
  float* c;  // (rows, columns), rows ldc apart
  std::int64_t ldc;
};

/// A way to multiply packed pairs.
struct PairKernel {
  const char* name;
  PairShape shape;
  void (*tile)(const PairTile& tile);
  void (*enter)() = nullptr;  // on the thread, before its tiles
  void (*leave)() = nullptr;  // after them
};

namespace avx512_bf16 {
/// By vdpbf16ps; only where the CPU has AVX512-BF16.
void pair_tile(const PairTile& tile);
}  // namespace avx512_bf16

namespace amx_bf16 {
/// By tdpbf16ps; only where the CPU has AMX-BF16 and Linux has granted the process its registers, and between enter and
/// leave.
void pair_tile(const PairTile& tile);
void enter();
void leave();
}  // namespace amx_bf16

}  // namespace tessera::kernels::host
