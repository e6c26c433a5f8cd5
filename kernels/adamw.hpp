#pragma once
// AdamW (Loshchilov, Hutter 2019) as PyTorch's: decoupled decay, bias correction, eps outside the square root.
//   g = clip·grad;  p *= 1 - lr·wd;  m = m + (1-β1)·(g - m);  v = β2·v + (1-β2)·g²;  p -= (lr/c1)·m / (√v/√c2 + eps)
// in fp32, each operation rounded once, fused multiply-adds written as such: the same bits on every instruction set and device.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// What changes from step to step, read from memory when the kernel runs. c1 = 1-β1^t, c2 = 1-β2^t.
struct AdamWScalars {
  float learning_rate = 0, beta1 = 0.9F, beta2 = 0.999F, eps = 1e-8F, weight_decay = 0;
  float bias_correction1 = 1, sqrt_bias_correction2 = 1;
  float clip = 1;  // multiplies the gradient
};

struct AdamWArgs {
  TensorView param, exp_avg, exp_avg_sq;  // (n) fp32, updated
  TensorView grad;                        // (n) fp32, only read
  const AdamWScalars* scalars = nullptr;
  bool decay = true;                      // weight_decay applies to this segment
};
void adamw(const AdamWArgs& args, StreamView stream);

}  // namespace tessera::kernels
