// SPDX-License-Identifier: Apache-2.0
#include "kernels/step.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void accumulate_norm(const AccumulateNormArgs& args, StreamView stream) {
  TESSERA_DISPATCH(stream, accumulate_norm, args);
}

void carry_sums(const CarrySumsArgs& args, StreamView stream) { TESSERA_DISPATCH(stream, carry_sums, args); }

void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream) { TESSERA_DISPATCH(stream, clip_and_skip, args); }

}  // namespace tessera::kernels
