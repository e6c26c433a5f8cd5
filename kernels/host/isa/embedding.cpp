// SPDX-License-Identifier: Apache-2.0
// Embedding rows: sum, copy, and scatter-add.
#include "kernels/host/embedding.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void sum(const T* a, const T* b, T* y, std::int64_t n, const T* next) {
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    prefetch_to_l2(next + i);
    part.store(y + i, part.load(a + i) + part.load(b + i));
  });
}

template <class T>
void copy(const T* x, T* y, std::int64_t n, const T* next) {
  constexpr std::int64_t line = line_numbers<T>;
  std::int64_t i = 0;
  for (; i + line <= n; i += line) {
    prefetch_to_l2(next + i);
    __builtin_memcpy(y + i, x + i, line * sizeof(T));
  }
  for (; i < n; ++i) y[i] = x[i];
}

template <class T>
void scatter(const RowIndices& of, const T* dy, std::int64_t rows, std::int64_t channels, std::int64_t columns,
             Acc<T>* table) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t index = of.ids ? of.ids[row] - of.first : row % of.period;
    if (index < 0 || index >= of.size) continue;
    const T* from = dy + row * channels;
    Acc<T>* to = table + index * channels;
    for_each_register<T>(columns, [=](std::int64_t c, const auto& part) {
      part.store(to + c, part.load(to + c) + part.load(from + c));
    });
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Embedding, embedding, sum<T>, copy<T>, scatter<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
