// SPDX-License-Identifier: Apache-2.0
// Embedding rows: sum, and scatter-add.
#include "kernels/host/embedding.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void sum(const T* a, const T* b, T* y, std::int64_t n) {
  for_each_register<T>(
      n, [=](std::int64_t i, const auto& part) { part.store(y + i, part.load(a + i) + part.load(b + i)); });
}

template <class T>
void scatter(const std::int32_t* ids, std::int64_t period, const T* dy, std::int64_t rows, std::int64_t channels,
             std::int64_t columns, Acc<T>* table) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t index = ids ? ids[row] : row % period;
    const T* from = dy + row * channels;
    Acc<T>* to = table + index * channels;
    for_each_register<T>(columns, [=](std::int64_t c, const auto& part) {
      part.store(to + c, part.load(to + c) + part.load(from + c));
    });
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Embedding, embedding, sum<T>, scatter<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
