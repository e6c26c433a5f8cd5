// SPDX-License-Identifier: Apache-2.0
#include "kernels/argmax.hpp"

#include "kernels/cuda/argmax.hpp"
#include "kernels/host/argmax.hpp"
#include "kernels/operations.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

void argmax(const ArgmaxArgs& args, [[maybe_unused]] StreamView stream) {
  TESSERA_ASSERT(args.x.shape.rank() == 2 && args.x.dtype == DType::f32 && args.x.shape[1] > 0 &&
                     args.out.dtype == DType::i32 && args.out.numel() == args.x.shape[0],
                 "x %s, out %s", args.x.shape.str().c_str(), args.out.shape.str().c_str());
  TESSERA_DISPATCH(args.x, argmax, args);
}

}  // namespace tessera::kernels
