// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM: one gemm after the other.
#include "kernels/grouped_gemm.hpp"

#include "kernels/gemm.hpp"
#include "kernels/host/ops.hpp"

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

}  // namespace

void grouped_gemm(const GroupedGemmArgs& args) {
  each_group(args.offsets, args.a.shape[0], [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    kernels::gemm({.a = args.a.rows(first, rows),
                   .b = args.b[e],
                   .c = args.c.rows(first, rows),
                   .trans_b = args.trans_b,
                   .alpha = args.alpha,
                   .beta = args.add ? 1.0 : 0.0,
                   .rows_vary = true},
                  host_stream);
  });
}

void grouped_gemm_gradient(const GroupedGradientArgs& args) {
  each_group(args.offsets, args.a.shape[0], [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    if (!args.c[e]) return;
    kernels::gemm({.a = args.a.rows(first, rows),
                   .b = args.b.rows(first, rows),
                   .c = args.c[e],
                   .trans_a = true,
                   .alpha = args.alpha,
                   .beta = args.add ? 1.0 : 0.0,
                   .rows_vary = true},
                  host_stream);
  });
}

}  // namespace tessera::kernels::host
