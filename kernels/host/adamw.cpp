// SPDX-License-Identifier: Apache-2.0
// AdamW over this rank's threads.
#include "kernels/adamw.hpp"

#include "kernels/host/adamw_constants.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/update.hpp"

namespace tessera::kernels::host {

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
