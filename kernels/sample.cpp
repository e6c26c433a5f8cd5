// SPDX-License-Identifier: Apache-2.0
#include "kernels/sample.hpp"

#include <algorithm>

#include "kernels/cuda/sample.hpp"
#include "kernels/operations.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

void sample(const SampleArgs& args, [[maybe_unused]] StreamView stream) {
  const std::int64_t rows = args.out.numel();
  TESSERA_ASSERT(args.x.shape.rank() == 2 && args.x.dtype == DType::f32 && args.x.shape[0] == rows &&
                     args.x.shape[1] > 0 && args.x.shape[1] <= max_sampled_vocab && args.out.dtype == DType::i32 &&
                     args.draws.dtype == DType::f64 && args.draws.numel() == rows && args.rule.temperature > 0,
                 "x %s, out %s", args.x.shape.str().c_str(), args.out.shape.str().c_str());
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::sample(args, stream);
  std::fill_n(args.out.as<std::int32_t>(), rows, undecided_token);
}

}  // namespace tessera::kernels
