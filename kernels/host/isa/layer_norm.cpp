// SPDX-License-Identifier: Apache-2.0
// LayerNorm, row by row: a row stays in L1 between its passes.
#include "kernels/host/layer_norm.hpp"

#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
inline void apply_row(const T* x, const T* weight, const T* bias, T* y, Acc<T> mean, Acc<T> rstd, std::int64_t n) {
  for_each_group<T>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        part.store(y + i, madd((part.load(x + i) - mean) * rstd, part.load(weight + i), part.load(bias + i)));
      });
}

template <class T>
void forward(const LayerNormRows<T>& args) {
  const std::int64_t n = args.channels;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const T* x = args.x + row * n;
    const Acc<T> mean = sum_of<T>(x, n, [](auto v) { return v; }) / static_cast<Acc<T>>(n);
    const Acc<T> variance = sum_of<T>(x, n, [=](auto v) { return (v - mean) * (v - mean); }) / static_cast<Acc<T>>(n);
    const Acc<T> rstd = Acc<T>(1) / square_root(variance + args.eps);
    if (args.mean) args.mean[row] = mean;
    if (args.rstd) args.rstd[row] = rstd;
    apply_row(x, args.weight, args.bias, args.y + row * n, mean, rstd, n);
  }
}

template <class T>
void apply(const LayerNormRows<T>& args) {
  const std::int64_t n = args.channels;
  for (std::int64_t row = 0; row < args.rows; ++row)
    apply_row(args.x + row * n, args.weight, args.bias, args.y + row * n, args.mean[row], args.rstd[row], n);
}

/// Adds a row to the gradients of weight and bias.
template <class T>
inline void sum_row(const LayerNormGradRows<T>& args, std::int64_t row) {
  const std::int64_t n = args.channels;
  const T *x = args.x + row * n, *dy = args.dy + row * n;
  using A = Acc<T>;
  A *dweight = args.dweight, *dbias = args.dbias;
  const A mean = args.mean[row], rstd = args.rstd[row];
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    const Vec<T> hat = (part.load(x + i) - mean) * rstd, d = part.load(dy + i);
    part.store(dweight + i, madd(d, hat, part.load(dweight + i)));
    part.store(dbias + i, part.load(dbias + i) + d);
  });
}

/// dx of a row; with Sums also what sum_row does.
template <bool Add, bool Sums, class T>
inline void backward_row(const LayerNormGradRows<T>& args, std::int64_t row) {
  const std::int64_t n = args.channels;
  const T *x = args.x + row * n, *dy = args.dy + row * n, *weight = args.weight;
  T* dx = args.dx + row * n;
  using A = Acc<T>;
  A *dweight = args.dweight, *dbias = args.dbias;
  const A mean = args.mean[row], rstd = args.rstd[row];
  Vec<T> sums{}, sums_hat{};
  for_each_register<T>(n, [=, &sums, &sums_hat](std::int64_t i, const auto& part) {
    const Vec<T> hat = (part.load(x + i) - mean) * rstd, d = part.load(dy + i), scaled = d * part.load(weight + i);
    if constexpr (Sums) {
      part.store(dweight + i, madd(d, hat, part.load(dweight + i)));
      part.store(dbias + i, part.load(dbias + i) + d);
    }
    sums += scaled;  // of numbers past n: 0
    sums_hat = madd(scaled, hat, sums_hat);
  });
  const A a = sum_of<T>(sums) / static_cast<A>(n), b = sum_of<T>(sums_hat) / static_cast<A>(n);
  for_each_group<T>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto hat = (part.load(x + i) - mean) * rstd;
        const auto d = rstd * (madd(part.load(dy + i), part.load(weight + i), like(hat, -a)) - hat * b);
        part.store(dx + i, Add ? part.load(dx + i) + d : d);
      });
}

template <class T>
void backward(const LayerNormGradRows<T>& args) {
  const bool sums = args.dweight != nullptr;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    if (args.dx == nullptr) sum_row(args, row);
    else if (args.add_to_dx && sums) backward_row<true, true>(args, row);
    else if (args.add_to_dx) backward_row<true, false>(args, row);
    else if (sums) backward_row<false, true>(args, row);
    else backward_row<false, false>(args, row);
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(LayerNorm, layer_norm, forward<T>, apply<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
