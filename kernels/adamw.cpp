#include "kernels/adamw.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void adamw(const AdamWArgs& args, StreamView stream) {
  const std::int64_t n = args.param.numel();
  TESSERA_ASSERT(args.exp_avg.numel() == n && args.exp_avg_sq.numel() == n && args.grad.numel() == n,
                 "param %lld, grad %lld elements", static_cast<long long>(n),
                 static_cast<long long>(args.grad.numel()));
  TESSERA_ASSERT(args.scalars != nullptr);
  TESSERA_ASSERT(
      !args.copy || (args.copy.numel() == n && (args.copy.dtype == DType::bf16 || args.copy.dtype == DType::f16)),
      "copy of %lld, %s", static_cast<long long>(args.copy.numel()), name_of(args.copy.dtype));
  std::int64_t end = 0;
  for (const AdamWSegment& segment : args.segments) {
    TESSERA_ASSERT(end <= segment.begin && segment.begin <= segment.end && segment.end <= n,
                   "segment [%lld, %lld) of %lld", static_cast<long long>(segment.begin),
                   static_cast<long long>(segment.end), static_cast<long long>(n));
    end = segment.end;
  }
  TESSERA_DISPATCH(args.param, adamw, args);
}

}  // namespace tessera::kernels
