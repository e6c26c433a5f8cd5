// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void adamw(const AdamWArgs& args, StreamView stream) {
  check_update(args.update);
  const std::int64_t n = args.update.param.numel();
  TESSERA_ASSERT(args.exp_avg.numel() == n && args.exp_avg_sq.numel() == n, "param %ld, moments %ld, %ld elements", n,
                 args.exp_avg.numel(), args.exp_avg_sq.numel());
  TESSERA_ASSERT(args.scalars != nullptr);
  TESSERA_DISPATCH(args.update.param, adamw, args);
}

}  // namespace tessera::kernels
