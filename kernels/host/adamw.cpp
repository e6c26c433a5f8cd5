// AdamW over this rank's threads.
#include "kernels/adamw.hpp"

#include <algorithm>

#include "kernels/host/adamw.hpp"
#include "kernels/host/convert.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t grain = 4096;  // elements

AdamWStep step_of(const AdamWScalars& s, bool decay) {
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

/// Updates a segment; the low-precision copy is written block by block while the block is in L1.
void update(const AdamWArgs& args, const AdamWSegment& segment) {
  const AdamWStep step = step_of(*args.scalars, segment.decay);
  const float* grad = args.grad.as<float>() + segment.begin;
  float *param = args.param.as<float>() + segment.begin, *m = args.exp_avg.as<float>() + segment.begin,
        *v = args.exp_avg_sq.as<float>() + segment.begin;
  parallel_ranges(segment.end - segment.begin, grain, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t block = args.copy ? grain : last - first;
    for (std::int64_t begin = first; begin < last; begin += block) {
      const std::int64_t n = std::min(block, last - begin), at = segment.begin + begin;
      adamw().step(step, grad + begin, param + begin, m + begin, v + begin, n);
      if (!args.copy) continue;
      if (args.copy.dtype == DType::bf16) convert().narrow(param + begin, args.copy.as<bf16>() + at, n);
      else convert().narrow(param + begin, args.copy.as<f16>() + at, n);
    }
  });
}

}  // namespace

void adamw(const AdamWArgs& args) {
  if (args.scalars->skip != 0) return;
  for (const AdamWSegment& segment : args.segments) update(args, segment);
}

}  // namespace tessera::kernels::host
