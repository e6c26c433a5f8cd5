// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of a product of halves: panels, widened to fp32 as they are packed, and the register tiles over them, each with
// its rounding store. One thread, one block; host/half_gemm.cpp cuts products into blocks.

#include <cstdint>

#include "kernels/host/dispatch.hpp"
#include "kernels/host/panel_source.hpp"

namespace tessera::kernels::host {

/// Widest panels of any instruction set: rows of A, columns of B.
inline constexpr std::int64_t most_panel_rows = 12, most_panel_columns = 32;
/// Floats behind the last panel of A that packing may write.
inline constexpr std::int64_t panel_slack = 16;

/// One block of k: sums = alpha·a·b, + `sums` unless it is the first. They go back to `sums`, or, after the last, to
/// c = sums + beta·c + bias, rounded once; beta 0 does not read c.
template <class T, class G>  // of bias: a half; of c: T or float
struct PanelBlock {
  const float *a, *b;  // panels of all rows and of all columns
  std::int64_t rows, columns, depth;
  float alpha;
  bool is_first, is_last;
  float* sums;  // (rows, columns), rows sums_ld apart; not used where the first block is the last
  std::int64_t sums_ld;
  G* c;  // (rows, columns), rows ldc apart
  std::int64_t ldc;
  float beta;
  const T* bias;  // null: none
};

template <class T>
struct HalfPanels {
  // Lines are padded with zeros to whole panels.
  void (*pack_a)(const PanelSource<T>& source, float* to);
  void (*pack_b)(const PanelSource<T>& source, float* to);
  void (*multiply)(const PanelBlock<T, T>& block);
  void (*multiply_f32)(const PanelBlock<T, float>& block);

  void run(const PanelBlock<T, T>& block) const { multiply(block); }
  void run(const PanelBlock<T, float>& block) const { multiply_f32(block); }
};
TESSERA_TABLE_DECLARE(HalfPanels<bf16>, half_panels_bf16)
TESSERA_TABLE_DECLARE(HalfPanels<f16>, half_panels_f16)
template <class T>
[[nodiscard]] const HalfPanels<T>& half_panels() {
  if constexpr (std::is_same_v<T, bf16>) return TESSERA_TABLE_CHOOSE(half_panels_bf16);
  else return TESSERA_TABLE_CHOOSE(half_panels_f16);
}

}  // namespace tessera::kernels::host
