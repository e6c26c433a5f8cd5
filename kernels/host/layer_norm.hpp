// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the LayerNorm kernels: ranges of rows, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct LayerNormRows {
  const T *x, *weight, *bias;
  T* y;
  Acc<T>*mean, *rstd;  // forward: may be null; apply: read
  std::int64_t rows, channels;
  Acc<T> eps;
};

template <class T>
struct LayerNormGradRows {
  const T *dy, *x, *weight;
  const Acc<T>*mean, *rstd;
  T* dx;                   // may be null
  Acc<T>*dweight, *dbias;  // added to; both may be null
  std::int64_t rows, channels;
  bool add_to_dx;
};

template <class T>
struct LayerNorm {
  void (*forward)(const LayerNormRows<T>&);
  void (*apply)(const LayerNormRows<T>&);
  void (*backward)(const LayerNormGradRows<T>&);
};
TESSERA_TABLE(LayerNorm, layer_norm)

}  // namespace tessera::kernels::host
