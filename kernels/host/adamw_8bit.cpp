// SPDX-License-Identifier: Apache-2.0
// AdamW with 8-bit moments over this rank's threads.
#include "kernels/adamw_8bit.hpp"

#include "kernels/host/adamw_8bit.hpp"
#include "kernels/host/adamw_constants.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/update.hpp"

namespace tessera::kernels::host {
namespace {

MomentBlocks blocks_at(const QuantizedMoment& moment, const DynamicCode& code, std::int64_t at) {
  return {{code.values, code.thresholds},
          moment.codes.as<std::uint8_t>() + at,
          moment.absmax.as<float>() + at / quantization_block};
}

}  // namespace

void adamw_8bit(const AdamW8BitArgs& args) {
  const UpdateArgs& update = args.update;
  if (update.decision->skip != 0) return;
  for (const UpdateSegment& segment : update.segments) {
    const AdamWStep step = step_of(*args.scalars, update.decision->clip, segment);
    // Ranges begin at multiples of 4096 elements of the segment: no block is split.
    update_segment(update, segment, [&](std::int64_t at, std::int64_t n) {
      adamw_8bit().step(step, update.grad.as<float>() + at, update.param.as<float>() + at,
                        blocks_at(args.exp_avg, signed_dynamic_code, at),
                        blocks_at(args.exp_avg_sq, unsigned_dynamic_code, at), n);
    });
  }
}

}  // namespace tessera::kernels::host
