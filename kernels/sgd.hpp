// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stochastic gradient descent with momentum as PyTorch's torch.optim.SGD: weight decay is added to the gradient,
// dampening is 0.
//   g = clip·grad + wd·p;  b = momentum·b + g;  p -= lr·(nesterov ? g + momentum·b : b)
// and without a momentum buffer p -= lr·g, in fp32. lr is the step's learning rate times the segment's factor, in
// double, rounded once. The operations, each rounded once: g = fma(wd, p, clip·grad);  b = fma(momentum, b, g);  u = b,
// with Nesterov fma(momentum, b, g);  p = fma(-lr, u, p). A buffer that starts at zero gives PyTorch's first step,
// where b = g. They give the same bits on every instruction set and device and for any number of threads.

#include "kernels/update.hpp"

namespace tessera::kernels {

/// Values that change from step to step, read when the kernel runs.
struct SgdScalars {
  double learning_rate = 0, momentum = 0;
  std::int64_t nesterov = 0;  // 1: Nesterov's momentum
};

struct SgdArgs {
  UpdateArgs update;
  TensorView momentum_buffer;  // (n) fp32, updated; absent: momentum is 0
  const SgdScalars* scalars = nullptr;
};
/// One launch on a device, up to 64 segments.
void sgd(const SgdArgs& args, StreamView stream);

}  // namespace tessera::kernels
