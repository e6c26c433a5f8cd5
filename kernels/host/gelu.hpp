// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the GELU kernels: ranges of elements, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Gelu {
  void (*forward)(const T* x, T* y, std::int64_t n);                 // y may be x
  void (*backward)(const T* x, const T* dy, T* dx, std::int64_t n);  // dx may be dy or x
};
TESSERA_TABLE(Gelu, gelu)

}  // namespace tessera::kernels::host
