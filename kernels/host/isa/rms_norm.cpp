// SPDX-License-Identifier: Apache-2.0
// RMSNorm, group by group: a group stays in L1 between its passes.
#include "kernels/host/rms_norm.hpp"

#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
inline void apply_group(const T* x, const T* weight, Acc<T> offset, T* y, Acc<T> rstd, std::int64_t n) {
  for_each_group<T>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        part.store(y + i, part.load(x + i) * rstd * (part.load(weight + i) + offset));
      });
}

template <class T>
void forward(const RmsNormRows<T>& args) {
  const std::int64_t n = args.channels;
  for (std::int64_t row = 0; row < args.rows; ++row)
    for (std::int64_t g = 0; g < args.groups; ++g) {
      const T* x = args.x + row * args.stride_x + g * n;
      const Acc<T> square = sum_of<T>(x, n, [](auto v) { return v * v; }) / static_cast<Acc<T>>(n);
      const Acc<T> rstd = Acc<T>(1) / square_root(square + args.eps);
      if (args.rstd) args.rstd[row * args.groups + g] = rstd;
      apply_group(x, args.weight, args.offset, args.y + row * args.stride_y + g * n, rstd, n);
    }
}

template <class T>
void apply(const RmsNormRows<T>& args) {
  const std::int64_t n = args.channels;
  for (std::int64_t row = 0; row < args.rows; ++row)
    for (std::int64_t g = 0; g < args.groups; ++g)
      apply_group(args.x + row * args.stride_x + g * n, args.weight, args.offset, args.y + row * args.stride_y + g * n,
                  args.rstd[row * args.groups + g], n);
}

/// Adds a group to the gradient of the weight.
template <class T>
inline void sum_group(const T* dy, const T* x, Acc<T> rstd, Acc<T>* dweight, std::int64_t n) {
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    const Vec<T> hat = part.load(x + i) * rstd;
    part.store(dweight + i, madd(part.load(dy + i), hat, part.load(dweight + i)));
  });
}

/// dx of a group; with Sums also what sum_group does.
template <bool Add, bool Sums, class T>
inline void backward_group(const RmsNormGradRows<T>& args, const T* dy, const T* x, Acc<T> rstd, T* dx) {
  using A = Acc<T>;
  const std::int64_t n = args.channels;
  const T* const weight = args.weight;
  A* const dweight = args.dweight;
  const A offset = args.offset;
  Vec<T> dots{};
  for_each_register<T>(n, [=, &dots](std::int64_t i, const auto& part) {
    const Vec<T> hat = part.load(x + i) * rstd, d = part.load(dy + i);
    if constexpr (Sums) part.store(dweight + i, madd(d, hat, part.load(dweight + i)));
    dots = madd(d * (part.load(weight + i) + offset), hat, dots);  // of numbers past n: 0
  });
  const A mean = sum_of<T>(dots) / static_cast<A>(n);
  for_each_group<T>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto d = rstd * madd(part.load(dy + i), part.load(weight + i) + offset, part.load(x + i) * rstd * -mean);
        part.store(dx + i, Add ? part.load(dx + i) + d : d);
      });
}

template <class T>
void backward(const RmsNormGradRows<T>& args) {
  const std::int64_t n = args.channels;
  const bool sums = args.dweight != nullptr;
  for (std::int64_t row = 0; row < args.rows; ++row)
    for (std::int64_t g = 0; g < args.groups; ++g) {
      const T* dy = args.dy + row * args.stride_dy + g * n;
      const T* x = args.x + row * args.stride_x + g * n;
      const Acc<T> rstd = args.rstd[row * args.groups + g];
      if (args.dx == nullptr) {
        sum_group(dy, x, rstd, args.dweight, n);
        continue;
      }
      T* dx = args.dx + row * args.stride_dx + g * n;
      if (args.add_to_dx && sums) backward_group<true, true>(args, dy, x, rstd, dx);
      else if (args.add_to_dx) backward_group<true, false>(args, dy, x, rstd, dx);
      else if (sums) backward_group<false, true>(args, dy, x, rstd, dx);
      else backward_group<false, false>(args, dy, x, rstd, dx);
    }
}

}  // namespace

TESSERA_TABLE_DEFINE(RmsNorm, rms_norm, forward<T>, apply<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
