// SPDX-License-Identifier: Apache-2.0
#pragma once
// The carry of an ExactSum's counters, their value, and the clip factor and skip flag made of it; for host and device,
// the bits of ExactSum::carry() and value(). One thread. Doubles: nvcc rounds each operation once (--fmad=false).

#include <cmath>

#include "kernels/host_device.hpp"
#include "kernels/step.hpp"

namespace tessera::kernels {

/// Word i of a sum after ExactSum::carry().
TESSERA_HD std::int64_t carried_counter(const std::int64_t* counters, int i) {
  constexpr int count = static_cast<int>(ExactSum::num_digits);
  if (i >= count) return counters[i];  // the number of non-finite terms
  const std::int64_t own = i + 1 < count ? counters[i] & 0xffffffff : counters[i];
  return i > 0 ? own + (counters[i - 1] >> 32) : own;
}

/// Of counters without a non-finite term. `digits`: scratch of ExactSum::num_digits.
TESSERA_HD double exact_value(const std::int64_t* counters, std::int64_t* digits) {
  constexpr int count = static_cast<int>(ExactSum::num_digits);
  // Carry upward so that every digit but the top is in [0, 2^32), then negate if the whole is negative.
  bool negative = false;
  for (int pass = 0; pass < 2; ++pass) {
    std::int64_t carry = 0;
    for (int i = 0; i < count; ++i) {
      const std::int64_t v = (negative ? -counters[i] : counters[i]) + carry;
      digits[i] = i + 1 < count ? (v & 0xffffffff) : v;
      carry = v >> 32;
    }
    if (digits[count - 1] >= 0) break;
    negative = true;
  }
  int top = count;
  while (top > 0 && digits[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The top 96 bits, truncated to 62; a sticky bit represents the bits below.
  const auto digit = [&](int below_top) {
    return top > below_top ? static_cast<std::uint64_t>(static_cast<std::uint32_t>(digits[top - 1 - below_top]))
                           : std::uint64_t{0};
  };
  const std::uint64_t high = digit(0), low = digit(1) << 32 | digit(2);
  bool sticky = false;
  for (int i = 0; i + 3 < top; ++i) sticky = sticky || digits[i] != 0;
  int drop = 2;  // high has one bit at least
  while (high >> (drop - 2) != 0) ++drop;
  sticky = sticky || (low & ((std::uint64_t{1} << drop) - 1)) != 0;
  const std::uint64_t head = high << (64 - drop) | low >> drop;
  const int scale = -1088 + 32 * (top - 3) + drop;  // the weight of digit 0 is 2^-1088
  const double magnitude =
      ldexp(static_cast<double>(static_cast<std::int64_t>(head << 1 | (sticky ? 1 : 0))), scale - 1);
  return negative ? -magnitude : magnitude;
}

TESSERA_HD void compute_clip_and_skip(const ClipAndSkipArgs& args, std::int64_t* digits) {
  StepScalars& step = *args.step;
  bool bad = step.decision.skip != 0 || args.loss[ExactSum::num_digits] != 0 || args.norm2[ExactSum::num_digits] != 0;
  for (int u = 0; u < args.units; ++u) bad = bad || args.flags[u] != 0;
  step.decision.skip = bad ? 1 : 0;
  if (bad) return;
  const double norm = sqrt(exact_value(args.norm2, digits)) / step.gradient_scale;
  const double wanted = step.max_grad_norm > 0 ? step.max_grad_norm / (norm + 1e-6) : 1.0;
  step.decision.clip = static_cast<double>(static_cast<float>((wanted < 1.0 ? wanted : 1.0) / step.gradient_scale));
}

}  // namespace tessera::kernels
