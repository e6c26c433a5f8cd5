// SPDX-License-Identifier: Apache-2.0
// Copies by memcpy, or by the device.
#include "runtime/base/transfer.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/disk_memory.hpp"
#include "runtime/base/error.hpp"

namespace tessera {

namespace {

void copy_disk(void* to, const void* from, std::size_t bytes) {
  if (DiskMemory* const memory = DiskMemory::of(from))
    return memory->read(static_cast<const std::byte*>(from), {static_cast<std::byte*>(to), bytes});
  DiskMemory* const memory = DiskMemory::of(to);
  TESSERA_ASSERT(memory != nullptr, "neither side of a copy is on disk");
  memory->write(static_cast<std::byte*>(to), {static_cast<const std::byte*>(from), bytes});
}

void fill_disk(void* to, unsigned char value, std::size_t bytes) {
  const std::vector<std::byte> values(std::min(bytes, host_staging_bytes), std::byte{value});
  for (std::size_t done = 0; done < bytes; done += values.size())
    copy_disk(static_cast<std::byte*>(to) + done, values.data(), std::min(values.size(), bytes - done));
}

}  // namespace

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
  if (device == disk_device) return copy_disk(to, from, bytes);
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
  if (device == disk_device) return fill_disk(to, value, bytes);
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
