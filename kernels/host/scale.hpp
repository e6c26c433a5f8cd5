// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of factors and soft caps: ranges of elements, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Scale {
  void (*scale)(T* x, Acc<T> factor, std::int64_t n);
  void (*soft_cap)(T* x, Acc<T> cap, std::int64_t n);
};
TESSERA_TABLE(Scale, scales)

}  // namespace tessera::kernels::host
