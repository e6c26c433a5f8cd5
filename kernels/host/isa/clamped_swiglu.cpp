// SPDX-License-Identifier: Apache-2.0
// The clamped SwiGLU: blocks of gate and up are separated, computed as vectors, and interleaved again.
#include "kernels/host/clamped_swiglu_table.hpp"
#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t clamped_block = 256;  // pairs of gate and up, at a time

/// min(x, limit), and -limit where x is below it if `both`; a NaN stays one. 1 in `inside` where the clamp has a slope.
template <class A>
inline A clamped(A x, A limit, bool both, A& inside) {
  const bool above = x > limit, below = both && x < -limit;
  inside = above || below ? A(0) : A(1);
  return above ? limit : below ? -limit : x;
}

/// Gate and up of `count` clamped_block, clamped, and their slopes.
template <class T>
struct ClampedPairs {
  using A = Acc<T>;
  alignas(64) A gate[clamped_block], up[clamped_block], gate_slope[clamped_block], up_slope[clamped_block];
  ClampedPairs(const T* gate_up, std::int64_t count, A limit) {
    for (std::int64_t i = 0; i < count; ++i) {
      gate[i] = clamped<A>(widen(gate_up[2 * i]), limit, false, gate_slope[i]);
      up[i] = clamped<A>(widen(gate_up[2 * i + 1]), limit, true, up_slope[i]);
    }
  }
};

/// e^(-alpha·x), clamped: beyond ±80 the sigmoid is within 2e-35 of 0 or 1, and e·s stays finite.
template <class A, class V>
[[gnu::always_inline]] inline V exp_minus_alpha(const V& x, A alpha) {
  return exp_bounded(clamp_magnitude(x * -alpha, A(80)));
}

template <class T>
void clamped_forward(const T* gate_up, T* y, std::int64_t n, Acc<T> alpha, Acc<T> limit) {
  using A = Acc<T>;
  for (std::int64_t first = 0; first < n; first += clamped_block) {
    const std::int64_t count = n - first < clamped_block ? n - first : clamped_block;
    const ClampedPairs<T> x(gate_up + 2 * first, count, limit);
    alignas(64) A out[clamped_block];
    for_each_register<A>(
        count, [&](std::int64_t i, const auto& part) __attribute__((always_inline)) {
          const auto g = part.load(x.gate + i), one = like(g, 1);
          const auto s = g / (one + exp_minus_alpha(g, alpha));
          part.store(out + i, (part.load(x.up + i) + one) * s);
        });
    for (std::int64_t i = 0; i < count; ++i) put(y[first + i], out[i]);
  }
}

template <class T>
void clamped_backward(const T* gate_up, const T* dy, T* dgate_up, std::int64_t n, Acc<T> alpha, Acc<T> limit) {
  using A = Acc<T>;
  for (std::int64_t first = 0; first < n; first += clamped_block) {
    const std::int64_t count = n - first < clamped_block ? n - first : clamped_block;
    const ClampedPairs<T> x(gate_up + 2 * first, count, limit);
    alignas(64) A d[clamped_block], dgate[clamped_block], dup[clamped_block];
    for (std::int64_t i = 0; i < count; ++i) d[i] = widen(dy[first + i]);
    for_each_register<A>(
        count, [&](std::int64_t i, const auto& part) __attribute__((always_inline)) {
          const auto g = part.load(x.gate + i), u = part.load(x.up + i), v = part.load(d + i), one = like(g, 1);
          const auto e = exp_minus_alpha(g, alpha);
          const auto s = one / (one + e);
          // (g·s)' = s·(1 + alpha·g·(1 - s)), and 1 - s = e·s
          part.store(dgate + i, part.load(x.gate_slope + i) * v * (u + one) * (s * madd(g * alpha, e * s, one)));
          part.store(dup + i, part.load(x.up_slope + i) * v * (g * s));
        });
    for (std::int64_t i = 0; i < count; ++i) {
      put(dgate_up[2 * (first + i)], dgate[i]);
      put(dgate_up[2 * (first + i) + 1], dup[i]);
    }
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(ClampedSwiglu, clamped_swiglu, clamped_forward<T>, clamped_backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
