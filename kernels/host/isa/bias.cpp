// SPDX-License-Identifier: Apache-2.0
// Column sums and element-wise addition.
#include "kernels/host/bias.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t columns, Acc<T>* out, bool from_out) {
  if (!from_out)
    for (std::int64_t c = 0; c < columns; ++c) out[c] = 0;
  std::int64_t row = 0;
  constexpr int together = 4;  // rows for one load and store of the sums, still added in order
  for (; row + together <= rows; row += together) {
    const T *p = x + row * stride, *next = row + 2 * together <= rows ? p + together * stride : p;
    for_each_register<T>(columns, [=](std::int64_t c, const auto& part) {
      Vec<T> sum = part.load(out + c);
#pragma GCC unroll 4
      for (int r = 0; r < together; ++r) sum += part.load(p + c + r * stride);
      if (c % line_numbers<T> == 0) {
#pragma GCC unroll 4
        for (int r = 0; r < together; ++r) prefetch_to_l2(next + c + r * stride);
      }
      part.store(out + c, sum);
    });
  }
  for (; row < rows; ++row) {
    const T* p = x + row * stride;
    for_each_register<T>(
        columns, [=](std::int64_t c, const auto& part) { part.store(out + c, part.load(out + c) + part.load(p + c)); });
  }
}

template <class T>
void add(const T* x, T* y, std::int64_t n) {
  for_each_register<T>(
      n, [=](std::int64_t i, const auto& part) { part.store(y + i, part.load(y + i) + part.load(x + i)); });
}

}  // namespace

TESSERA_TABLE_DEFINE(Bias, bias, column_sums<T>, add<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
