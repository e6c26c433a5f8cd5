// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw_8bit.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void adamw_8bit(const AdamW8BitArgs& args, StreamView stream) {
  check_update(args.update);
  const std::int64_t n = args.update.param.numel(), blocks = (n + quantization_block - 1) / quantization_block;
  for (const QuantizedMoment* moment : {&args.exp_avg, &args.exp_avg_sq})
    TESSERA_ASSERT(moment->codes.numel() == n && moment->absmax.numel() == blocks, "param %ld, codes %ld, absmax %ld",
                   n, moment->codes.numel(), moment->absmax.numel());
  for (const UpdateSegment& segment : args.update.segments)
    TESSERA_ASSERT(segment.begin % quantization_block == 0, "a segment begins at %ld", segment.begin);
  TESSERA_ASSERT(args.scalars != nullptr);
  TESSERA_DISPATCH(args.update.param, adamw_8bit, args);
}

}  // namespace tessera::kernels
