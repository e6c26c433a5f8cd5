// SPDX-License-Identifier: Apache-2.0
// Copies.
#include "models/params.hpp"

#include "runtime/base/transfer.hpp"

namespace tessera::models {

void copy(const TensorView& x, const TensorView& y, StreamView stream) {
  TESSERA_ASSERT(x.nbytes() == y.nbytes() && x.dtype == y.dtype && x.device == y.device);
  copy_bytes(y.data, x.data, x.nbytes(), stream);
}

void copy_columns(const TensorView& x, std::int64_t stride_x, const TensorView& y, std::int64_t stride_y,
                  StreamView stream) {
  TESSERA_ASSERT(x.shape == y.shape && x.shape.rank() == 2 && x.dtype == y.dtype && x.device == y.device);
  const std::size_t element = size_of(x.dtype);
  const auto bytes = [element](std::int64_t elements) { return static_cast<std::size_t>(elements) * element; };
  copy_rows({.to = y.data,
             .to_pitch = bytes(stride_y),
             .from = x.data,
             .from_pitch = bytes(stride_x),
             .width = bytes(x.shape[1]),
             .rows = static_cast<std::size_t>(x.shape[0])},
            stream);
}

void clear(const TensorView& y, StreamView stream) { clear_bytes(y.data, y.nbytes(), stream); }

}  // namespace tessera::models
