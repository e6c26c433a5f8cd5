// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM: one gemm after the other.
#include "kernels/grouped_gemm.hpp"

#include "kernels/gemm.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::host {
namespace {

/// Calls f(group, first row, rows); offsets are in host memory.
template <class F>
void each_group(const TensorView& offsets, std::int64_t rows, const F& f) {
  const auto* at = offsets.as<std::int32_t>();
  const std::int64_t groups = offsets.numel() - 1;
  TESSERA_ASSERT(at[0] == 0 && at[groups] == rows, "groups of %d rows, %ld expected", at[groups], rows);
  for (std::int64_t e = 0; e < groups; ++e) f(e, std::int64_t{at[e]}, std::int64_t{at[e + 1]} - at[e]);
}

/// `count` rows from `first`, of a matrix with this row stride; 0: contiguous.
TensorView rows_of(TensorView matrix, std::int64_t stride, std::int64_t first, std::int64_t count) {
  const std::int64_t elements = first * row_stride(matrix, stride);
  matrix.data = static_cast<std::byte*>(matrix.data) + static_cast<std::size_t>(elements) * size_of(matrix.dtype);
  matrix.shape = {count, matrix.shape[1]};
  return matrix;
}

}  // namespace

void grouped_gemm(const GroupedGemmArgs& args) {
  each_group(args.offsets, args.a.shape[0], [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    kernels::gemm({.a = rows_of(args.a, args.stride_a, first, rows),
                   .b = args.b[e],
                   .c = rows_of(args.c, args.stride_c, first, rows),
                   .trans_b = args.trans_b,
                   .alpha = args.alpha,
                   .beta = args.add ? 1.0 : 0.0,
                   .stride_a = args.stride_a,
                   .stride_c = args.stride_c,
                   .rows_vary = true,
                   .parts = args.parts},
                  host_stream);
  });
}

void grouped_gemm_gradient(const GroupedGradientArgs& args) {
  each_group(args.offsets, args.a.shape[0], [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    if (!args.c[e]) return;
    kernels::gemm({.a = rows_of(args.a, args.stride_a, first, rows),
                   .b = rows_of(args.b, args.stride_b, first, rows),
                   .c = args.c[e],
                   .trans_a = true,
                   .alpha = args.alpha,
                   .beta = args.add ? 1.0 : 0.0,
                   .stride_a = args.stride_a,
                   .stride_b = args.stride_b,
                   .rows_vary = true,
                   .parts = args.parts},
                  host_stream);
  });
}

}  // namespace tessera::kernels::host
