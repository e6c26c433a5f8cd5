// Copies by memcpy, or by the device.
#include "runtime/base/transfer.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/cuda/memory.hpp"

namespace tessera {

void copy_bytes(void* to, const void* from, std::size_t bytes, StreamView stream) {
  if constexpr (cuda_built)
    if (stream.handle != nullptr) return cuda::copy(to, from, bytes, stream);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void copy_rows(const RowCopy& c, StreamView stream) {
  if constexpr (cuda_built)
    if (stream.handle != nullptr) {
      if (c.rows == 1 || std::max(c.to_pitch, c.from_pitch) <= cuda::max_pitch) return cuda::copy(c, stream);
      for (std::size_t row = 0; row < c.rows; ++row)
        cuda::copy(static_cast<std::byte*>(c.to) + row * c.to_pitch,
                   static_cast<const std::byte*>(c.from) + row * c.from_pitch, c.width, stream);
      return;
    }
  for (std::size_t row = 0; row < c.rows; ++row)
    std::memcpy(static_cast<std::byte*>(c.to) + row * c.to_pitch,
                static_cast<const std::byte*>(c.from) + row * c.from_pitch, c.width);
}

void clear_bytes(void* to, std::size_t bytes, StreamView stream) {
  if constexpr (cuda_built)
    if (stream.handle != nullptr) return cuda::fill(to, 0, bytes, stream);
  if (bytes > 0) std::memset(to, 0, bytes);
}

void copy_now(Device device, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) {
      cuda::synchronize(device);
      cuda::copy(to, from, bytes, cuda::default_stream);
      return cuda::synchronize(device);
    }
  std::memcpy(to, from, bytes);
}

void fill_now(Device device, void* to, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return;
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) {
      cuda::synchronize(device);
      cuda::fill(to, value, bytes, cuda::default_stream);
      return cuda::synchronize(device);
    }
  std::memset(to, value, bytes);
}

void synchronize([[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) cuda::synchronize(device);
}

}  // namespace tessera
