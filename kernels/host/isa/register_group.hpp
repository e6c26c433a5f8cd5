// SPDX-License-Identifier: Apache-2.0
#pragma once
// RegisterGroup: several registers that are computed with operation by operation, so that none waits for its own last
// result. For host/isa only; internal linkage.

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

inline constexpr int group_registers = 2;
static_assert(group_registers % 2 == 0);

/// A is float or double.
template <class A>
struct RegisterGroup {
  Vec<A> at[group_registers];
};

/// f of each register.
template <class F, class A, class... Groups>
[[gnu::always_inline]] inline RegisterGroup<A> each(const F& f, const RegisterGroup<A>& first, const Groups&... rest) {
  RegisterGroup<A> result;
#pragma GCC unroll 8
  for (int i = 0; i < group_registers; ++i) result.at[i] = f(first.at[i], rest.at[i]...);
  return result;
}

#define TESSERA_OPERATOR(op)                                                                                         \
  template <class A>                                                                                                 \
  [[gnu::always_inline]] inline RegisterGroup<A> operator op(const RegisterGroup<A>& a, const RegisterGroup<A>& b) { \
    return each([](const Vec<A>& x, const Vec<A>& y) { return x op y; }, a, b);                                      \
  }                                                                                                                  \
  template <class A>                                                                                                 \
  [[gnu::always_inline]] inline RegisterGroup<A> operator op(const RegisterGroup<A>& a, std::type_identity_t<A> b) { \
    return each([b](const Vec<A>& x) { return x op b; }, a);                                                         \
  }                                                                                                                  \
  template <class A>                                                                                                 \
  [[gnu::always_inline]] inline RegisterGroup<A> operator op(std::type_identity_t<A> a, const RegisterGroup<A>& b) { \
    return each([a](const Vec<A>& y) { return a op y; }, b);                                                         \
  }
TESSERA_OPERATOR(+)
TESSERA_OPERATOR(-)
TESSERA_OPERATOR(*)
TESSERA_OPERATOR(/)
#undef TESSERA_OPERATOR

/// Numbers of T in a group.
template <class T>
inline constexpr std::int64_t group_width = group_registers* vec_width<T>;

/// Of bf16 a pair of registers holds the numbers with even and those with odd indices: a shift and a mask widen them.
#if defined(__AVX2__)
template <class T>
inline constexpr bool in_pairs = std::is_same_v<T, bf16>;
#else
template <class T>
inline constexpr bool in_pairs = false;
#endif

template <class T>
[[gnu::always_inline]] inline RegisterGroup<Acc<T>> load_group(const T* p) {
  constexpr int w = vec_width<T>;
  RegisterGroup<Acc<T>> group;
  if constexpr (in_pairs<T>) {
#pragma GCC unroll 8
    for (int i = 0; i < group_registers; i += 2) {
      VecBits both;
      __builtin_memcpy(&both, p + i * w, sizeof both);
      group.at[i] = reinterpret_cast<Vec<float>>(both << 16);
      group.at[i + 1] = reinterpret_cast<Vec<float>>(both & 0xffff0000);
    }
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < group_registers; ++i) group.at[i] = load<T>(p + i * w);
  }
  return group;
}

/// Stores the bf16 with even and with odd indices.
template <Subnormals S>
[[gnu::always_inline]] inline void store_pair(const Vec<float>& even, const Vec<float>& odd, bf16* to) {
#if defined(__AVX512BF16__)
  constexpr int subnormal = 0x20;
  if (S == Subnormals::may_be_zero ||
      __builtin_expect(
          _kortestz_mask16_u8(_mm512_fpclass_ps_mask(even, subnormal), _mm512_fpclass_ps_mask(odd, subnormal)), true)) {
    typedef std::uint16_t Bits16 __attribute__((vector_size(vec_bytes)));
    Bits16 order;
    for (int i = 0; i < 32; ++i) order[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
    const auto rounded = reinterpret_cast<__m512i>(_mm512_maskz_cvtne2ps_pbh(0xffffffff, odd, even));
    const __m512i stored = _mm512_maskz_permutexvar_epi16(0xffffffff, reinterpret_cast<__m512i>(order), rounded);
    __builtin_memcpy(to, &stored, sizeof stored);
    return;
  }
#endif
  const VecBits stored = (bf16_bits(odd) & 0xffff0000) | bf16_bits(even) >> 16;
  __builtin_memcpy(to, &stored, sizeof stored);
}

/// As WholeRegister, of arrays of T: of bf16 the numbers of a group are not in the order of an fp32 array.
template <class T, Subnormals S>
struct WholeGroup {
  [[gnu::always_inline]] RegisterGroup<Acc<T>> load(const T* p) const { return load_group<T>(p); }
  [[gnu::always_inline]] void store(T* p, const RegisterGroup<Acc<T>>& group) const {
    constexpr int w = vec_width<T>;
#pragma GCC unroll 8
    for (int i = 0; i < group_registers; i += in_pairs<T> ? 2 : 1) {
      if constexpr (in_pairs<T>) store_pair<S>(group.at[i], group.at[i + 1], p + i * w);
      else TESSERA_ISA::store<T, S>(p + i * w, group.at[i]);
    }
  }
};

/// for_each_register by groups, of arrays of T alone, then by registers. `body` is marked always_inline: groups would
/// be passed to a call in memory.
template <class T, Subnormals S = Subnormals::kept, class Body>
[[gnu::always_inline]] inline void for_each_group(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + group_width<T> <= n; i += group_width<T>) body(i, WholeGroup<T, S>{});
  for (; i + vec_width<T> <= n; i += vec_width<T>) body(i, WholeRegister<S>{});
  if (i < n) body(i, LastNumbers<S>{n - i});
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
