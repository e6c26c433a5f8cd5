// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the casts: a range of elements on one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

struct Convert {
  void (*widen_bf16)(const bf16* x, float* y, std::int64_t n);
  void (*widen_f16)(const f16* x, float* y, std::int64_t n);
  // y may begin where x begins.
  void (*narrow_bf16)(const float* x, bf16* y, std::int64_t n);
  void (*narrow_f16)(const float* x, f16* y, std::int64_t n);

  void widen(const bf16* x, float* y, std::int64_t n) const { widen_bf16(x, y, n); }
  void widen(const f16* x, float* y, std::int64_t n) const { widen_f16(x, y, n); }
  void narrow(const float* x, bf16* y, std::int64_t n) const { narrow_bf16(x, y, n); }
  void narrow(const float* x, f16* y, std::int64_t n) const { narrow_f16(x, y, n); }
};
TESSERA_TABLE_PLAIN(Convert, convert)

}  // namespace tessera::kernels::host
