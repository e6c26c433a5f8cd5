// Moving bytes on the host: the two operations that need no arithmetic.
#include "models/params.hpp"

#include <cstring>

namespace tessera::models {

void copy(const TensorView& x, const TensorView& y, StreamView /*stream*/) {
  TESSERA_ASSERT(x.nbytes() == y.nbytes() && x.dtype == y.dtype);
  TESSERA_ASSERT(x.device == host_device && y.device == host_device);
  std::memcpy(y.data, x.data, x.nbytes());
}

void copy_columns(const TensorView& x, std::int64_t stride_x, const TensorView& y, std::int64_t stride_y, StreamView /*stream*/) {
  TESSERA_ASSERT(x.shape == y.shape && x.shape.rank() == 2 && x.dtype == y.dtype);
  const std::size_t element = size_of(x.dtype), bytes = static_cast<std::size_t>(x.shape[1]) * element;
  for (std::int64_t row = 0; row < x.shape[0]; ++row)
    std::memcpy(static_cast<char*>(y.data) + static_cast<std::size_t>(row * stride_y) * element,
                static_cast<const char*>(x.data) + static_cast<std::size_t>(row * stride_x) * element, bytes);
}

void clear(const TensorView& y, StreamView /*stream*/) {
  TESSERA_ASSERT(y.device == host_device);
  std::memset(y.data, 0, y.nbytes());
}

}  // namespace tessera::models
