// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the clamped SwiGLU: ranges of elements of y, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct ClampedSwiglu {
  void (*forward)(const T* gate_up, T* y, std::int64_t n, Acc<T> alpha, Acc<T> limit);
  /// dgate_up may be gate_up.
  void (*backward)(const T* gate_up, const T* dy, T* dgate_up, std::int64_t n, Acc<T> alpha, Acc<T> limit);
};
TESSERA_TABLE(ClampedSwiglu, clamped_swiglu)

}  // namespace tessera::kernels::host
