// SPDX-License-Identifier: Apache-2.0
// Casts between fp32 and 16-bit floats, register by register.
#include "kernels/host/convert.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void widen_all(const T* x, float* y, std::int64_t n) {
  constexpr std::int64_t w = vec_width<float>;
  std::int64_t i = 0;
  for (; i + w <= n; i += w) store<float>(y + i, load<T>(x + i));
  for (; i < n; ++i) y[i] = widen(x[i]);
}

/// y may begin where x begins: elements are read before they are overwritten.
template <class T>
void narrow_all(const float* x, T* y, std::int64_t n) {
  constexpr std::int64_t w = vec_width<float>;
  std::int64_t i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    const Vec<float> low = load<float>(x + i), high = load<float>(x + i + w);
    store_half(low, y + i);
    store_half(high, y + i + w);
  }
  for (; i < n; ++i) {
    float in;
    __builtin_memcpy(&in, x + i, sizeof in);
    const T out(in);
    __builtin_memcpy(y + i, &out, sizeof out);
  }
}

}  // namespace

const Convert convert_table = {widen_all<bf16>, widen_all<f16>, narrow_all<bf16>, narrow_all<f16>};

}  // namespace tessera::kernels::host::TESSERA_ISA
