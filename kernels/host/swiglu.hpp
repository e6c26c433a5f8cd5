// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables of the SwiGLU and GeGLU kernels: ranges of elements, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Swiglu {
  void (*forward)(const T* gate, const T* up, T* y, std::int64_t n);                            // y may be gate or up
  void (*backward)(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n);  // outputs may be dy
};
TESSERA_TABLE(Swiglu, swiglu)
TESSERA_TABLE(Swiglu, geglu)

}  // namespace tessera::kernels::host
