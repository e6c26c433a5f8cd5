// Gradient norm, clip factor and skip flag on the host, by the formulas shared with the device.
#include "kernels/step.hpp"

#include "kernels/host/ops.hpp"
#include "kernels/step_formulas.hpp"

namespace tessera::kernels::host {

void accumulate_norm(const AccumulateNormArgs& args) {
  *args.flag = args.unit[ExactSum::num_digits] != 0 ? 1 : 0;
  for (std::size_t i = 0; i < ExactSum::num_words; ++i) {
    args.all[i] += args.unit[i];
    args.unit[i] = 0;
  }
}

void clip_and_skip(const ClipAndSkipArgs& args) {
  std::int64_t digits[ExactSum::num_digits];
  compute_clip_and_skip(args, digits);
}

}  // namespace tessera::kernels::host
