// Norm, clip factor and skip flag on the device: a few integers, one block.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/step_formulas.hpp"

namespace tessera::kernels::cuda {
namespace {

__global__ void join_kernel(const AccumulateNormArgs args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= static_cast<int>(ExactSum::num_words)) return;
  if (i == static_cast<int>(ExactSum::num_digits)) *args.flag = args.unit[i] != 0 ? 1 : 0;
  args.all[i] += args.unit[i];
  args.unit[i] = 0;
}

__global__ void clip_and_skip_kernel(const ClipAndSkipArgs args) {
  __shared__ std::int64_t digits[ExactSum::num_digits];
  compute_clip_and_skip(args, digits);
}

}  // namespace

void accumulate_norm(const AccumulateNormArgs& args, StreamView stream) {
  static_assert(ExactSum::num_words <= 128);
  join_kernel<<<1, 128, 0, stream_of(stream)>>>(args);
  check_launch("accumulate_norm");
}

void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream) {
  clip_and_skip_kernel<<<1, 1, 0, stream_of(stream)>>>(args);
  check_launch("clip_and_skip");
}

}  // namespace tessera::kernels::cuda
