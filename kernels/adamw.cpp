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
}

void adamw(const AdamWArgs& args, StreamView stream) {
  const std::int64_t n = args.param.numel();
  TESSERA_ASSERT(args.exp_avg.numel() == n && args.exp_avg_sq.numel() == n && args.grad.numel() == n,
                 "param %lld, grad %lld elements", static_cast<long long>(n), static_cast<long long>(args.grad.numel()));
  TESSERA_ASSERT(args.scalars != nullptr);
  if constexpr (cuda_built)
    if (is_on_cuda(args.param)) return cuda::adamw(args, stream);
  const AdamWScalars& s = *args.scalars;
  if (s.skip != 0) return;
  const host::AdamWStep step{
      .keep = args.decay ? static_cast<float>(1 - s.learning_rate * s.weight_decay) : 1.0F,
      .rate = static_cast<float>(s.learning_rate / s.bias_correction1),
      .beta2 = static_cast<float>(s.beta2),
      .blend1 = static_cast<float>(1 - s.beta1),
      .blend2 = static_cast<float>(1 - s.beta2),
      .sqrt_correction2 = static_cast<float>(s.sqrt_bias_correction2),
      .eps = static_cast<float>(s.eps),
      .clip = static_cast<float>(s.clip),
  };
  const float* grad = args.grad.as<float>();
  float *param = args.param.as<float>(), *m = args.exp_avg.as<float>(), *v = args.exp_avg_sq.as<float>();
  const auto& table = host::adamw();
  const auto update = [&](std::int64_t begin, std::int64_t end) {
    table.step(step, grad + begin, param + begin, m + begin, v + begin, end - begin);
  };
  if (!args.copy) return host::parallel_ranges(n, grain, update);
  TESSERA_ASSERT(args.copy.numel() == n && (args.copy.dtype == DType::bf16 || args.copy.dtype == DType::f16), "copy of %lld, %s",
                 static_cast<long long>(args.copy.numel()), name_of(args.copy.dtype));
  host::parallel_ranges(n, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += grain) {  // a piece is copied while it is in the inner cache
      const std::int64_t end = std::min(begin + grain, last);
      update(begin, end);
      if (args.copy.dtype == DType::bf16) host::convert().narrow(param + begin, args.copy.as<bf16>() + begin, end - begin);
      else host::convert().narrow(param + begin, args.copy.as<f16>() + begin, end - begin);
    }
  });
}

}  // namespace tessera::kernels
