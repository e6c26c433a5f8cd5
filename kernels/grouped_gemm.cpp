// SPDX-License-Identifier: Apache-2.0
#include "kernels/grouped_gemm.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels {

std::int64_t group_stride(const GroupMatrices& matrices, std::int64_t groups) {
  const TensorView first = matrices[0];
  const auto size = static_cast<std::int64_t>(size_of(first.dtype));
  const auto bytes_to = [&](std::int64_t e) {
    return static_cast<const char*>(matrices[e].data) - static_cast<const char*>(first.data);
  };
  const std::int64_t bytes = groups > 1 ? bytes_to(1) : 0;
  for (std::int64_t e = 0; e < groups; ++e)
    TESSERA_ASSERT(matrices[e].shape == first.shape && matrices[e].dtype == first.dtype && bytes_to(e) == e * bytes &&
                       bytes % size == 0,
                   "matrix %ld of a list is %ld bytes after the first, not %ld", e, bytes_to(e), e * bytes);
  return bytes / size;
}

void grouped_gemm(const GroupedGemmArgs& args, StreamView stream) {
  const Shape matrix = args.b[0].shape;
  TESSERA_ASSERT(args.a.shape.rank() == 2 && args.c.shape.rank() == 2 && matrix.rank() == 2 &&
                     args.offsets.numel() > 1 && args.a.shape[0] == args.c.shape[0] &&
                     matrix[args.trans_b ? 1 : 0] == args.a.shape[1] &&
                     matrix[args.trans_b ? 0 : 1] == args.c.shape[1] && args.a.dtype == args.c.dtype &&
                     args.a.dtype == args.b[0].dtype,
                 "a %s, b %s, c %s", args.a.shape.str().c_str(), matrix.str().c_str(), args.c.shape.str().c_str());
  check_stride(args.a, args.stride_a);
  check_stride(args.c, args.stride_c);
  check_parts(args.parts, args.c.shape[0], args.c.shape[1], args.a.shape[1]);
  TESSERA_DISPATCH(args.a, grouped_gemm, args);
}

void grouped_gemm_gradient(const GroupedGradientArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.a.shape.rank() == 2 && args.b.shape.rank() == 2 && args.offsets.numel() > 1 &&
                     args.a.shape[0] == args.b.shape[0] && args.a.dtype == args.b.dtype,
                 "a %s, b %s", args.a.shape.str().c_str(), args.b.shape.str().c_str());
  const Shape matrix{args.a.shape[1], args.b.shape[1]};
  for (std::int64_t e = 0; e + 1 < args.offsets.numel(); ++e)
    TESSERA_ASSERT(args.c[e] ? args.c[e].shape == matrix : !is_on_cuda(args.a), "c %s of group %lld, expected %s",
                   args.c[e].shape.str().c_str(), static_cast<long long>(e), matrix.str().c_str());
  check_stride(args.a, args.stride_a);
  check_stride(args.b, args.stride_b);
  check_parts(args.parts, matrix[0], matrix[1], args.a.shape[0]);
  TESSERA_DISPATCH(args.a, grouped_gemm_gradient, args);
}

}  // namespace tessera::kernels
