// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels {

void check_parts(const GemmParts& parts, std::int64_t m, std::int64_t n, std::int64_t k) {
  const std::int64_t full = parts.of == GemmParts::Of::m ? m : parts.of == GemmParts::Of::n ? n : k;
  std::int64_t sum = 0;
  for (int i = 0; i < parts.count; ++i) sum += parts.sizes[i];
  TESSERA_ASSERT(parts.count == 0 || (parts.count <= GemmParts::most && sum == full), "%d parts of %ld, sum %ld",
                 parts.count, full, sum);
}

void gemm(const GemmArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.a.shape.rank() == 2 && args.b.shape.rank() == 2 && args.c.shape.rank() == 2);
  const std::int64_t m = args.a.shape[args.trans_a ? 1 : 0], k = args.a.shape[args.trans_a ? 0 : 1],
                     n = args.b.shape[args.trans_b ? 0 : 1];
  TESSERA_ASSERT(args.b.shape[args.trans_b ? 1 : 0] == k && args.c.shape[0] == m && args.c.shape[1] == n,
                 "a %s, b %s, c %s", args.a.shape.str().c_str(), args.b.shape.str().c_str(),
                 args.c.shape.str().c_str());
  TESSERA_ASSERT(!args.bias || args.bias.numel() == n, "bias %s, n %ld", args.bias.shape.str().c_str(), n);
  TESSERA_ASSERT(!args.addend || (args.beta != 0 && args.addend.shape == args.c.shape &&
                                  args.addend.dtype == args.c.dtype && args.addend.data != args.c.data),
                 "addend %s, c %s", args.addend.shape.str().c_str(), args.c.shape.str().c_str());
  check_stride(args.a, args.stride_a);
  check_stride(args.b, args.stride_b);
  check_stride(args.c, args.stride_c);
  check_parts(args.parts, m, n, k);
  TESSERA_DISPATCH(args.c, gemm, args);
}

}  // namespace tessera::kernels
