// SPDX-License-Identifier: Apache-2.0
#include "kernels/update.hpp"

namespace tessera::kernels {

void check_update(const UpdateArgs& args) {
  const std::int64_t n = args.param.numel();
  TESSERA_ASSERT(args.grad.numel() == n, "param %ld, grad %ld elements", n, args.grad.numel());
  TESSERA_ASSERT(args.decision != nullptr);
  TESSERA_ASSERT(
      !args.copy || (args.copy.numel() == n && (args.copy.dtype == DType::bf16 || args.copy.dtype == DType::f16)),
      "copy of %ld, %s", args.copy.numel(), name_of(args.copy.dtype));
  std::int64_t end = 0;
  for (const UpdateSegment& segment : args.segments) {
    TESSERA_ASSERT(end <= segment.begin && segment.begin <= segment.end && segment.end <= n,
                   "segment [%ld, %ld) of %ld", segment.begin, segment.end, n);
    end = segment.end;
  }
}

}  // namespace tessera::kernels
