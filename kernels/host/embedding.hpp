// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the embedding kernels.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// Which row of a table of `size` rows row i of dy belongs to: ids[i] - first, or i mod period where ids is null. None
/// if that is not in [0, size).
struct RowIndices {
  const std::int32_t* ids;
  std::int64_t period, first, size;
};

/// `next` is the row that the following call takes: it is fetched into L2 meanwhile, because single rows
/// at scattered addresses are too short for the processor's own prefetching.
template <class T>
struct Embedding {
  /// y[c] = a[c] + b[c], rounded once; `next` of a.
  void (*sum)(const T* a, const T* b, T* y, std::int64_t n, const T* next);
  void (*copy)(const T* x, T* y, std::int64_t n, const T* next);
  /// Adds rows of dy to rows of `table`, in order: table[index(i)·channels + c] for c in [0, columns).
  void (*scatter)(const RowIndices& of, const T* dy, std::int64_t rows, std::int64_t channels, std::int64_t columns,
                  Acc<T>* table);
};
TESSERA_TABLE(Embedding, embedding)

}  // namespace tessera::kernels::host
