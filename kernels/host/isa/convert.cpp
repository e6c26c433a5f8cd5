// Casts between float and the halves. Integer rounding for bf16 (vcvtneps2bf16 would flush subnormal numbers); f16 by the instruction
// where there is one, which agrees with the integer form in every bit.
#include "kernels/host/convert.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t block = 16;  // read whole before it is written: y may begin where x begins

template <class T>
void widen_all(const T* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, f16>) {
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
#endif
#pragma omp simd
  for (std::int64_t j = i; j < n; ++j) y[j] = widen(x[j]);
}

template <class T>
void narrow_all(const float* x, T* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + block <= n; i += block) {
    T out[block];
#if defined(__F16C__)
    if constexpr (std::is_same_v<T, f16>) {
      for (int half = 0; half < 2; ++half)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 8 * half), _mm256_cvtps_ph(_mm256_loadu_ps(x + i + 8 * half), 0));
    } else
#endif
    {
      float in[block];
      __builtin_memcpy(in, x + i, sizeof in);
#pragma omp simd
      for (int j = 0; j < block; ++j) out[j] = T(in[j]);
    }
    __builtin_memcpy(y + i, out, sizeof out);
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
