#include "kernels/step.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void accumulate_norm(const AccumulateNormArgs& args, StreamView stream) {
  if constexpr (cuda_built)
    if (is_on_cuda(stream)) return cuda::accumulate_norm(args, stream);
  host::accumulate_norm(args);
}

void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream) {
  if constexpr (cuda_built)
    if (is_on_cuda(stream)) return cuda::clip_and_skip(args, stream);
  host::clip_and_skip(args);
}

}  // namespace tessera::kernels
