// AdamW: shapes, the constants of the step, threads, dispatch.
#include "kernels/adamw.hpp"

#include <algorithm>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/adamw.hpp"
#include "kernels/host/convert.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

namespace {
constexpr std::int64_t grain = 4096;  // elements

host::AdamWStep step_of(const AdamWScalars& s, bool decay) {
  return {
      .keep = decay ? static_cast<float>(1 - s.learning_rate * s.weight_decay) : 1.0F,
      .rate = static_cast<float>(s.learning_rate / s.bias_correction1),
      .beta2 = static_cast<float>(s.beta2),
      .blend1 = static_cast<float>(1 - s.beta1),
      .blend2 = static_cast<float>(1 - s.beta2),
      .sqrt_correction2 = static_cast<float>(s.sqrt_bias_correction2),
      .eps = static_cast<float>(s.eps),
      .clip = static_cast<float>(s.clip),
  };
}

/// With its rounded copy: a piece is copied while it is in the inner cache.
void update(const AdamWArgs& args, const AdamWSegment& segment) {
  const host::AdamWStep step = step_of(*args.scalars, segment.decay);
  const float* grad = args.grad.as<float>() + segment.begin;
  float *param = args.param.as<float>() + segment.begin, *m = args.exp_avg.as<float>() + segment.begin,
        *v = args.exp_avg_sq.as<float>() + segment.begin;
  host::parallel_ranges(segment.end - segment.begin, grain, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t stretch = args.copy ? grain : last - first;
    for (std::int64_t begin = first; begin < last; begin += stretch) {
      const std::int64_t n = std::min(stretch, last - begin), at = segment.begin + begin;
      host::adamw().step(step, grad + begin, param + begin, m + begin, v + begin, n);
      if (!args.copy) continue;
      if (args.copy.dtype == DType::bf16) host::convert().narrow(param + begin, args.copy.as<bf16>() + at, n);
      else host::convert().narrow(param + begin, args.copy.as<f16>() + at, n);
    }
  });
}

}  // namespace

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
  if constexpr (cuda_built)
    if (is_on_cuda(args.param)) return cuda::adamw(args, stream);
  if (args.scalars->skip != 0) return;
  for (const AdamWSegment& segment : args.segments) update(args, segment);
}

}  // namespace tessera::kernels
