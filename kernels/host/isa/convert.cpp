// Casts between float and the halves, register by register. Integer rounding for bf16 (vcvtneps2bf16 would flush subnormal numbers); f16 by
// the instruction where there is one, which agrees with the integer form in every bit.
#include "kernels/host/convert.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// One register of floats as halves, in memory.
[[gnu::always_inline]] inline void store_half(const Vec<float>& x, bf16* to) {
  typedef std::int32_t Bits __attribute__((vector_size(vec_bytes)));
  typedef std::uint16_t Stored __attribute__((vector_size(vec_bytes / 2)));
  typedef std::uint32_t Unsigned __attribute__((vector_size(vec_bytes)));
  const auto b = reinterpret_cast<Unsigned>(x), upper = b >> 16;
  const Unsigned rounded = (b + 0x7fff + (upper & 1)) >> 16, nan = upper | 0x40;
  const Unsigned chosen = reinterpret_cast<Bits>(b & 0x7fffffff) > 0x7f800000 ? nan : rounded;
  const Stored out = __builtin_convertvector(chosen, Stored);
  __builtin_memcpy(to, &out, sizeof out);
}
[[gnu::always_inline]] inline void store_half(const Vec<float>& x, f16* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtps_ph(0xffff, x, 0));
#elif defined(__AVX2__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, 0));
#else
  f16 out[vec_width<float>];
  for (int i = 0; i < vec_width<float>; ++i) out[i] = f16(x[i]);
  __builtin_memcpy(to, out, sizeof out);
#endif
}

template <class T>
void widen_all(const T* x, float* y, std::int64_t n) {
  constexpr std::int64_t w = vec_width<float>;
  std::int64_t i = 0;
  for (; i + w <= n; i += w) store<float>(y + i, load<T>(x + i));
  for (; i < n; ++i) y[i] = widen(x[i]);
}

/// y may begin where x begins: what is read is never behind what is written.
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
