// SPDX-License-Identifier: Apache-2.0
// Gradient norm, clip factor and skip flag on the host, by the formulas shared with the device.
#include "kernels/step.hpp"

#include <algorithm>

#include "kernels/host/ops.hpp"
#include "kernels/step_formulas.hpp"

namespace tessera::kernels::host {

void accumulate_norm(const AccumulateNormArgs& args) {
  *args.flag = args.unit[ExactSum::num_digits] != 0 ? 1 : 0;
  for (int i = 0; i < static_cast<int>(ExactSum::num_counters); ++i) args.all[i] += carried_counter(args.unit, i);
  std::fill_n(args.unit, ExactSum::num_counters, 0);
}

void carry_sums(const CarrySumsArgs& args) {
  constexpr int count = static_cast<int>(ExactSum::num_counters);
  for (int s = 0; s < args.sums; ++s) {
    std::int64_t* const counters = args.counters + s * count;
    for (int i = count - 1; i >= 0; --i)
      counters[i] = carried_counter(counters, i);  // counter i is made of counters i and i - 1
  }
}

void clip_and_skip(const ClipAndSkipArgs& args) {
  std::int64_t digits[ExactSum::num_digits];
  compute_clip_and_skip(args, digits);
}

}  // namespace tessera::kernels::host
