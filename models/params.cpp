// Moving bytes on the host: the two operations that need no arithmetic.
#include "models/params.hpp"

#include <cstring>

namespace tessera::models {

void copy(const TensorView& x, const TensorView& y, StreamView /*stream*/) {
  TESSERA_ASSERT(x.nbytes() == y.nbytes() && x.dtype == y.dtype);
  TESSERA_ASSERT(x.device == host_device && y.device == host_device);
  std::memcpy(y.data, x.data, x.nbytes());
}

void clear(const TensorView& y, StreamView /*stream*/) {
  TESSERA_ASSERT(y.device == host_device);
  std::memset(y.data, 0, y.nbytes());
}

}  // namespace tessera::models
