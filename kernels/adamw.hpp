// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW (Loshchilov, Hutter 2019) as PyTorch's: decoupled decay, bias correction, eps outside the square root.
//   g = clip·grad;  p *= 1 - lr·wd;  m = m + (1-β1)·(g - m);  v = β2·v + (1-β2)·g²;  p -= (lr/c1)·m / (√v/√c2 + eps)
// in fp32. lr/c1, 1-lr·wd, 1-β1 and 1-β2 are computed in double and rounded once (1-β2 from a float β2 is wrong by
// 1e-5); lr is the step's learning rate times the segment's factor. The operations, each rounded once: m = fma(1-β1,
// g-m, m);  v = fma(1-β2, g·g, β2·v); p = fma(-lr/c1, m/(√v/√c2 + eps), p·(1-lr·wd)). They give the same bits on every
// instruction set and device and for any number of threads.

#include "kernels/update.hpp"

namespace tessera::kernels {

/// Values that change from step to step, read when the kernel runs. c1 = 1-β1^t, c2 = 1-β2^t.
struct AdamWScalars {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double bias_correction1 = 1, sqrt_bias_correction2 = 1;
};

struct AdamWArgs {
  UpdateArgs update;
  TensorView exp_avg, exp_avg_sq;  // (n) fp32, updated
  const AdamWScalars* scalars = nullptr;
};
/// One launch on a device, up to 64 segments.
void adamw(const AdamWArgs& args, StreamView stream);

}  // namespace tessera::kernels
