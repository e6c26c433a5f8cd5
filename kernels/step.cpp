// What a step decides: one formula for host and device (step_formulas.hpp), and the dispatch.
#include "kernels/step.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/step_formulas.hpp"

namespace tessera::kernels {

void accumulate_norm(const AccumulateNormArgs& args, StreamView stream) {
  if constexpr (cuda_built)
    if (is_on_cuda(stream)) return cuda::accumulate_norm(args, stream);
  *args.flag = args.unit[ExactSum::num_digits] != 0 ? 1 : 0;
  for (std::size_t i = 0; i < ExactSum::num_words; ++i) {
    args.all[i] += args.unit[i];
    args.unit[i] = 0;
  }
}

void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream) {
  if constexpr (cuda_built)
    if (is_on_cuda(stream)) return cuda::clip_and_skip(args, stream);
  std::int64_t digits[ExactSum::num_digits];
  compute_clip_and_skip(args, digits);
}

}  // namespace tessera::kernels
