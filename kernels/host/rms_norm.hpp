// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the RMSNorm kernels: ranges of rows on one thread. A row holds `groups` groups of `channels`, each
// normalized by itself.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct RmsNormRows {
  const T *x, *weight;
  T* y;
  Acc<T>* rstd;  // forward: may be null; apply: read
  std::int64_t rows, groups, channels, stride_x, stride_y;
  Acc<T> eps, offset;  // offset: added to the weight
};

template <class T>
struct RmsNormGradRows {
  const T *dy, *x, *weight;
  const Acc<T>* rstd;
  T* dx;            // may be null
  Acc<T>* dweight;  // added to; may be null
  std::int64_t rows, groups, channels, stride_dy, stride_x, stride_dx;
  bool add_to_dx;
  Acc<T> offset;
};

template <class T>
struct RmsNorm {
  void (*forward)(const RmsNormRows<T>&);
  void (*apply)(const RmsNormRows<T>&);
  void (*backward)(const RmsNormGradRows<T>&);
};
TESSERA_TABLE(RmsNorm, rms_norm)

}  // namespace tessera::kernels::host
