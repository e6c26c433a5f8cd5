// SPDX-License-Identifier: Apache-2.0
#pragma once
// Vec: one SIMD register (GCC vector extension), as wide as the instruction set this source is compiled for, and the
// GEMM microkernel made of it: a register tile of tile_rows × tile_cols accumulators. For host/isa only.

#include <cstdint>
#include <type_traits>

#include "runtime/base/half.hpp"

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace tessera::kernels::host::TESSERA_ISA {

#if defined(__AVX512F__)
inline constexpr int vec_bytes = 64;
inline constexpr int tile_rows = 12;  // 24 accumulators of 32 registers
#elif defined(__AVX2__)
inline constexpr int vec_bytes = 32;
inline constexpr int tile_rows = 6;  // 12 accumulators of 16 registers
#else
inline constexpr int vec_bytes = 16;
inline constexpr int tile_rows = 6;
#endif

/// Elements of T in the type they are computed in: 16-bit floats are fp32 in a register.
template <class T>
struct VecOf {
  typedef Acc<T> type __attribute__((vector_size(vec_bytes)));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
using IntOf = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

/// Two neighbouring bf16, the first in the lower 16 bits: an operand of the bf16 dot-product instruction, which adds
/// both products to an fp32 sum.
struct Bf16x2 {
  std::uint32_t bits;
};
[[gnu::always_inline]] inline Bf16x2 bf16x2(bf16 first, bf16 second) {
  return {first.bits | static_cast<std::uint32_t>(second.bits) << 16};
}
template <>
struct VecOf<Bf16x2> {
  typedef std::uint32_t type __attribute__((vector_size(vec_bytes)));
};
/// What products of T are summed in.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, Bf16x2>, float, T>;

/// Elements of a register, and columns of a register tile.
template <class T>
inline constexpr int vec_width = vec_bytes / static_cast<int>(sizeof(Acc<T>));
template <class T>
inline constexpr int tile_cols = 2 * vec_width<T>;

/// The bits of a register of floats.
typedef std::uint32_t VecBits __attribute__((vector_size(vec_bytes)));

// Intrinsics where one instruction does it: g++ 12 makes several of __builtin_convertvector. The AVX-512 ones in the
// form with a mask, since it warns of its header's plain ones.

/// One register of floats from 16-bit floats in memory.
[[gnu::always_inline]] inline Vec<float> load_half(const bf16* p) {
#if defined(__AVX512F__)
  const auto bits = reinterpret_cast<VecBits>(
      _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__AVX2__)
  const auto bits =
      reinterpret_cast<VecBits>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  typedef std::uint16_t Stored __attribute__((vector_size(vec_bytes / 2)));
  Stored stored;
  __builtin_memcpy(&stored, p, sizeof stored);
  const auto bits = __builtin_convertvector(stored, VecBits);
#endif
  return reinterpret_cast<Vec<float>>(bits << 16);
}
[[gnu::always_inline]] inline Vec<float> load_half(const f16* p) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  Vec<float> v;
  for (int i = 0; i < vec_width<float>; ++i) v[i] = p[i];
  return v;
#endif
}

/// x rounded to bf16, in the upper 16 bits of each 32; the lower 16 are not defined. With integers.
[[gnu::always_inline]] inline VecBits bf16_bits(const Vec<float>& x) {
  const auto b = reinterpret_cast<VecBits>(x);
#if defined(__AVX512F__)
  const VecBits rounded = b + 0x7fff + (b >> 16 & 1);
  return reinterpret_cast<VecBits>(_mm512_mask_or_epi32(reinterpret_cast<__m512i>(rounded),
                                                        _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                                        reinterpret_cast<__m512i>(b), _mm512_set1_epi32(0x400000)));
#else
  typedef std::int32_t Signed __attribute__((vector_size(vec_bytes)));
  return reinterpret_cast<Signed>(b & 0x7fffffff) > 0x7f800000 ? b | 0x400000 : b + 0x7fff + (b >> 16 & 1);
#endif
}
/// What a store makes of subnormal numbers. Instructions that round to bf16 flush them to zero, the integer form rounds
/// them: kept chooses by what is in the register.
enum class Subnormals { kept, may_be_zero };

/// Stores one register of floats as 16-bit floats.
template <Subnormals S = Subnormals::kept>
[[gnu::always_inline]] inline void store_half(const Vec<float>& x, bf16* to) {
#if defined(__AVX512BF16__)
  constexpr int subnormal = 0x20;
  if (S == Subnormals::may_be_zero || __builtin_expect(_mm512_fpclass_ps_mask(x, subnormal) == 0, true)) {
    const __m256bh bits = _mm512_maskz_cvtneps_pbh(0xffff, x);
    __builtin_memcpy(to, &bits, sizeof bits);
    return;
  }
#endif
  const VecBits upper = bf16_bits(x) >> 16;
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(upper)));
#elif defined(__AVX2__)
  const auto both = reinterpret_cast<__m256i>(upper);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packus_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
#else
  typedef std::uint16_t Stored __attribute__((vector_size(vec_bytes / 2)));
  const Stored out = __builtin_convertvector(upper, Stored);
  __builtin_memcpy(to, &out, sizeof out);
#endif
}
template <Subnormals = Subnormals::kept>
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
[[gnu::always_inline]] inline Vec<T> load(const T* p) {
  if constexpr (is_half<T>) {
    return load_half(p);
  } else {
    Vec<T> v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
}
template <class T, Subnormals S = Subnormals::kept>
[[gnu::always_inline]] inline void store(T* p, const Vec<T>& v) {
  if constexpr (is_half<T>) store_half<S>(v, p);
  else __builtin_memcpy(p, &v, sizeof v);
}
/// What would be loaded after v was stored as T.
template <class T>
[[gnu::always_inline]] inline Vec<T> rounded(const Vec<T>& v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return reinterpret_cast<Vec<float>>(bf16_bits(v) & 0xffff0000);
  } else if constexpr (is_half<T>) {
    T stored[vec_width<T>];
    store<T>(stored, v);
    return load<T>(stored);
  } else {
    return v;
  }
}

/// Which numbers a loop over registers takes at once: a whole register, or the last ones of an array, whose register
/// is filled with zeros.
template <Subnormals S = Subnormals::kept>
struct WholeRegister {
  template <class T>
  [[gnu::always_inline]] Vec<T> load(const T* p) const {
    return TESSERA_ISA::load<T>(p);
  }
  template <class T>
  [[gnu::always_inline]] void store(T* p, const Vec<T>& v) const {
    TESSERA_ISA::store<T, S>(p, v);
  }
};
template <Subnormals S = Subnormals::kept>
struct LastNumbers {
  std::int64_t count;
  template <class T>
  [[gnu::always_inline]] Vec<T> load(const T* p) const {
    T padded[vec_width<T>] = {};
    for (std::int64_t i = 0; i < count; ++i) padded[i] = p[i];
    return TESSERA_ISA::load<T>(padded);
  }
  template <class T>
  [[gnu::always_inline]] void store(T* p, const Vec<T>& v) const {
    T padded[vec_width<T>];
    TESSERA_ISA::store<T, S>(padded, v);
    for (std::int64_t i = 0; i < count; ++i) p[i] = padded[i];
  }
};

/// Calls body(i, part) for the registers of [0, n): part.load<U>(p + i) and part.store<U>(p + i, v). All numbers go
/// through registers, so that bits do not depend on where in an array a number is.
template <class T, class Body>
[[gnu::always_inline]] inline void for_each_register(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + vec_width<T> <= n; i += vec_width<T>) body(i, WholeRegister<>{});
  if (i < n) body(i, LastNumbers<>{n - i});
}

/// Numbers of a cache line.
template <class T>
inline constexpr std::int64_t line_numbers = 64 / static_cast<std::int64_t>(sizeof(T));

/// Fetches the cache line of *p into L2.
[[gnu::always_inline]] inline void prefetch_to_l2(const void* p) { __builtin_prefetch(p, /*rw=*/0, /*locality=*/2); }

template <class T>
[[gnu::always_inline]] inline Vec<T> splat(T x) {
  if constexpr (std::is_same_v<T, Bf16x2>) return Vec<T>{} + x.bits;
  else return x - Vec<T>{};  // minus zero: the compiler folds it away, unlike plus zero
}

#if defined(__AVX512BF16__)
[[gnu::always_inline]] inline Vec<float> add_products(const Vec<Bf16x2>& a, const Vec<Bf16x2>& b, const Vec<float>& c) {
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
#endif

/// a·b + c: fused if the instruction set has FMA, else two operations. Of bf16x2, with AVX512-BF16: the sum of both
/// products and c, in which subnormal numbers are zero.
template <class T>
[[gnu::always_inline]] inline Vec<Sum<T>> multiply_add(const Vec<T>& a, const Vec<T>& b, const Vec<Sum<T>>& c) {
  if constexpr (std::is_same_v<T, Bf16x2>) return add_products(a, b, c);
#if defined(__AVX512F__)
  else if constexpr (sizeof(Acc<T>) == 4) return _mm512_fmadd_ps(a, b, c);
  else return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  else if constexpr (sizeof(Acc<T>) == 4) return _mm256_fmadd_ps(a, b, c);
  else return _mm256_fmadd_pd(a, b, c);
#else
  else return a * b + c;
#endif
}

/// The A of a register tile: element (row, k) is data[row·row_stride + k·k_stride].
template <class T>
struct TileA {
  const T* data;
  std::int64_t row_stride, k_stride;
};

/// The B of a register tile: row k is data[k·stride …].
template <class T>
struct TileB {
  const T* data;
  std::int64_t stride;
};

/// C = A·B, or C += A·B: tile_rows × tile_cols. Row r of C is c + r·ldc. Of bf16x2, `depth` is half the numbers.
template <bool Add, class T>
inline void gemm_microkernel(const TileA<T>& a, const TileB<T>& b, std::int64_t depth, Sum<T>* c, std::int64_t ldc) {
  constexpr int w = vec_width<T>;
  Vec<Sum<T>> low[tile_rows], high[tile_rows];
#pragma GCC unroll 16
  for (int r = 0; r < tile_rows; ++r) low[r] = high[r] = Vec<Sum<T>>{};
  const T *p = a.data, *q = b.data;
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vec<T> b_low = load<T>(q), b_high = load<T>(q + w);
#pragma GCC unroll 16
    for (int r = 0; r < tile_rows; ++r) {
      const Vec<T> x = splat<T>(p[r * a.row_stride]);
      low[r] = multiply_add<T>(x, b_low, low[r]);
      high[r] = multiply_add<T>(x, b_high, high[r]);
    }
    p += a.k_stride;
    q += b.stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < tile_rows; ++r) {
    Sum<T>* const row = c + r * ldc;
    store<Sum<T>>(row, Add ? load<Sum<T>>(row) + low[r] : low[r]);
    store<Sum<T>>(row + w, Add ? load<Sum<T>>(row + w) + high[r] : high[r]);
  }
}

/// Transposes vec_width registers, by exchanging smaller and smaller blocks across the diagonal.
template <class T>
[[gnu::always_inline]] inline void transpose(Vec<T> (&v)[vec_width<T>]) {
  constexpr int w = vec_width<T>;
  using Index = typename VecOf<IntOf<T>>::type;
#pragma GCC unroll 8
  for (int h = w / 2; h >= 1; h /= 2) {
    Index low, high;
    for (int l = 0; l < w; ++l) {
      low[l] = l & h ? w + l - h : l;
      high[l] = l & h ? w + l : l + h;
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) {
      if (i & h) continue;
      const Vec<T> a = v[i], b = v[i + h];
      v[i] = __builtin_shuffle(a, b, low);
      v[i + h] = __builtin_shuffle(a, b, high);
    }
  }
}

}  // namespace tessera::kernels::host::TESSERA_ISA
