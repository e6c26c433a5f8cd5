// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of SGD: a range of elements on one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// Constants of a step, each rounded to fp32 once.
struct SgdStep {
  float decay;  // weight decay
  float rate, momentum, clip;
  bool nesterov;
};

struct Sgd {
  /// buffer null: without momentum.
  void (*step)(const SgdStep& step, const float* grad, float* param, float* buffer, std::int64_t n);
};
TESSERA_TABLE_PLAIN(Sgd, sgd)

}  // namespace tessera::kernels::host
