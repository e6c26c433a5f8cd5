// SPDX-License-Identifier: Apache-2.0
#include "kernels/scale.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void scale(const ScaleArgs& args, StreamView stream) { TESSERA_DISPATCH(args.x, scale, args); }

void soft_cap(const SoftCapArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.cap > 0, "a cap of %g", args.cap);
  TESSERA_DISPATCH(args.x, soft_cap, args);
}

}  // namespace tessera::kernels
