// AdamW over this rank's threads.
#include "kernels/adamw.hpp"

#include "kernels/host/adamw.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/update.hpp"

namespace tessera::kernels::host {
namespace {

AdamWStep step_of(const AdamWScalars& s, double clip, const UpdateSegment& segment) {
  const double rate = s.learning_rate * segment.lr_factor;
  return {
      .keep = static_cast<float>(1 - rate * segment.weight_decay),
      .rate = static_cast<float>(rate / s.bias_correction1),
      .beta2 = static_cast<float>(s.beta2),
      .blend1 = static_cast<float>(1 - s.beta1),
      .blend2 = static_cast<float>(1 - s.beta2),
      .sqrt_correction2 = static_cast<float>(s.sqrt_bias_correction2),
      .eps = static_cast<float>(s.eps),
      .clip = static_cast<float>(clip),
  };
}

}  // namespace

void adamw(const AdamWArgs& args) {
  const UpdateArgs& update = args.update;
  if (update.decision->skip != 0) return;
  for (const UpdateSegment& segment : update.segments) {
    const AdamWStep step = step_of(*args.scalars, update.decision->clip, segment);
    update_segment(update, segment, [&](std::int64_t at, std::int64_t n) {
      adamw().step(step, update.grad.as<float>() + at, update.param.as<float>() + at, args.exp_avg.as<float>() + at,
                   args.exp_avg_sq.as<float>() + at, n);
    });
  }
}

}  // namespace tessera::kernels::host
