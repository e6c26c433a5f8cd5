// SPDX-License-Identifier: Apache-2.0
// SGD: a fixed sequence of correctly rounded operations, so that every instruction set gives the same bits.
#include "kernels/host/sgd.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <bool nesterov>
void with_momentum(const SgdStep& step, const float* grad, float* param, float* buffer, std::int64_t n) {
  const SgdStep s = step;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = fma_exact(s.decay, param[i], s.clip * grad[i]);
    const float b = fma_exact(s.momentum, buffer[i], g);
    const float u = nesterov ? fma_exact(s.momentum, b, g) : b;
    buffer[i] = b;
    param[i] = fma_exact(-s.rate, u, param[i]);
  }
}

void step(const SgdStep& step, const float* grad, float* param, float* buffer, std::int64_t n) {
  if (buffer != nullptr) {
    if (step.nesterov) with_momentum<true>(step, grad, param, buffer, n);
    else with_momentum<false>(step, grad, param, buffer, n);
    return;
  }
  const SgdStep s = step;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    param[i] = fma_exact(-s.rate, fma_exact(s.decay, param[i], s.clip * grad[i]), param[i]);
}

}  // namespace

const Sgd sgd_table = {step};

}  // namespace tessera::kernels::host::TESSERA_ISA
