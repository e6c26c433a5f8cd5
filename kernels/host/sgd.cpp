// SPDX-License-Identifier: Apache-2.0
// SGD over this rank's threads.
#include "kernels/sgd.hpp"

#include "kernels/host/ops.hpp"
#include "kernels/host/sgd.hpp"
#include "kernels/host/update.hpp"

namespace tessera::kernels::host {

void sgd(const SgdArgs& args) {
  const UpdateArgs& update = args.update;
  if (update.decision->skip != 0) return;
  const SgdScalars& s = *args.scalars;
  float* const buffer = args.momentum_buffer ? args.momentum_buffer.as<float>() : nullptr;
  for (const UpdateSegment& segment : update.segments) {
    const SgdStep step{.decay = static_cast<float>(segment.weight_decay),
                       .rate = static_cast<float>(s.learning_rate * segment.lr_factor),
                       .momentum = static_cast<float>(s.momentum),
                       .clip = static_cast<float>(update.decision->clip),
                       .nesterov = s.nesterov != 0};
    update_segment(update, segment, [&](std::int64_t at, std::int64_t n) {
      sgd().step(step, update.grad.as<float>() + at, update.param.as<float>() + at,
                 buffer != nullptr ? buffer + at : nullptr, n);
    });
  }
}

}  // namespace tessera::kernels::host
