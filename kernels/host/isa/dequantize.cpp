// SPDX-License-Identifier: Apache-2.0
// Quantized matrices: values of 4 bits by lookup in a register where there is one of 16 floats, else in a table.
#include "kernels/host/dequantize.hpp"

#include "kernels/host/isa/vec.hpp"
#include "kernels/quantized_codes.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t block_elements = 64;

/// The elements of a block, of which n are stored.
template <class T>
void four_bit_block(const float* code, const std::uint8_t* codes, float absmax, T* out, std::int64_t n) {
  T values[16];
  for (int i = 0; i < 16; ++i) {
    const float value = code[i] * absmax;
    if constexpr (sizeof(T) == 8) values[i] = static_cast<double>(value);
    else values[i] = T(value);
  }
  const std::int64_t pairs = n / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    out[2 * i] = values[codes[i] >> 4];
    out[2 * i + 1] = values[codes[i] & 15];
  }
  if (n % 2 != 0) out[n - 1] = values[codes[pairs] >> 4];
}

#if defined(__AVX512F__)

/// The 16 elements of 8 bytes of codes: indices into a register of 16 values.
[[gnu::always_inline]] inline __m512i indices_of(const std::uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15)),
                high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  return _mm512_maskz_cvtepu8_epi32(0xffff, _mm_unpacklo_epi8(high, low));
}

template <class T>
void full_block(const float* code, const std::uint8_t* codes, float absmax, T* out) {
  const Vec<float> values = load<float>(code) * absmax;
  for (int i = 0; i < block_elements / 16; ++i) {
    const Vec<float> x = reinterpret_cast<Vec<float>>(
        _mm512_maskz_permutexvar_ps(0xffff, indices_of(codes + 8 * i), reinterpret_cast<__m512>(values)));
    if constexpr (sizeof(T) == 4) store<float>(out + 16 * i, x);
    else store_half(x, out + 16 * i);
  }
}
void full_block(const float* code, const std::uint8_t* codes, float absmax, double* out) {
  four_bit_block(code, codes, absmax, out, block_elements);
}

#else

template <class T>
void full_block(const float* code, const std::uint8_t* codes, float absmax, T* out) {
  four_bit_block(code, codes, absmax, out, block_elements);
}

#endif

template <class T>
void four_bit_values_of(const float* code, const std::uint8_t* codes, const float* absmax, T* out, std::int64_t n) {
  std::int64_t b = 0;
  for (; (b + 1) * block_elements <= n; ++b)
    full_block(code, codes + b * block_elements / 2, absmax[b], out + b * block_elements);
  if (b * block_elements < n)
    four_bit_block(code, codes + b * block_elements / 2, absmax[b], out + b * block_elements, n - b * block_elements);
}

/// As many codes as a register has floats.
typedef std::int8_t Int8Codes __attribute__((vector_size(vec_bytes / 4)));

template <class T>
void int8_values_of(const std::int8_t* codes, float absmax, T* out, std::int64_t n) {
  std::int64_t i = 0;
  if constexpr (sizeof(T) < 8) {
    constexpr std::int64_t w = vec_width<float>;
    for (; i + w <= n; i += w) {
      Int8Codes some;
      __builtin_memcpy(&some, codes + i, sizeof some);
      const Vec<float> x = __builtin_convertvector(some, Vec<float>) * absmax * int8_step;
      if constexpr (sizeof(T) == 4) store<float>(out + i, x);
      else store_half(x, out + i);
    }
  }
  for (; i < n; ++i) {
    const float value = static_cast<float>(codes[i]) * absmax * int8_step;
    if constexpr (sizeof(T) == 8) out[i] = static_cast<double>(value);
    else out[i] = T(value);
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Dequantize, dequantize, four_bit_values_of<T>, int8_values_of<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
