// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stream-ordered copies: at once on the host, after the stream's work on a device.

#include <cstddef>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"

namespace tessera {

/// Ranges must not overlap. Host memory that a device's stream copies must be pinned, and left alone until the copy has
/// passed.
void copy_bytes(void* to, const void* from, std::size_t bytes, StreamView stream);

/// `rows` rows of `width` bytes, `to_pitch` / `from_pitch` bytes apart.
struct RowCopy {
  void* to = nullptr;
  std::size_t to_pitch = 0;
  const void* from = nullptr;
  std::size_t from_pitch = 0;
  std::size_t width = 0, rows = 0;
};
void copy_rows(const RowCopy& copy, StreamView stream);

/// Sets every byte to 0.
void clear_bytes(void* to, std::size_t bytes, StreamView stream);

/// A synchronous copy, for start-up, files and tests: waits for all work of `device` first. One side is on `device`,
/// the other in any memory.
void copy_now(Device device, void* to, const void* from, std::size_t bytes);

/// Synchronous: sets every byte to `value`.
void fill_now(Device device, void* to, unsigned char value, std::size_t bytes);

/// Waits for all work given to `device`.
void synchronize(Device device);

/// Bytes staged in host memory at a time between a device and a file.
inline constexpr std::size_t host_staging_bytes = std::size_t{4} << 20;

}  // namespace tessera
