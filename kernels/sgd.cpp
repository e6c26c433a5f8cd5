// SPDX-License-Identifier: Apache-2.0
#include "kernels/sgd.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void sgd(const SgdArgs& args, StreamView stream) {
  check_update(args.update);
  const std::int64_t n = args.update.param.numel();
  TESSERA_ASSERT(!args.momentum_buffer || args.momentum_buffer.numel() == n, "param %ld, buffer %ld elements", n,
                 args.momentum_buffer.numel());
  TESSERA_ASSERT(args.scalars != nullptr);
  TESSERA_DISPATCH(args.update.param, sgd, args);
}

}  // namespace tessera::kernels
